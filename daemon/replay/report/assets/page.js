// Draws the figures in the colours of the page, and again when the reader's theme changes.
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { responsive: true, displayModeBar: false }; // its buttons would cover the legend
  const LEGEND_GAP_PX = 38; // below the legend: the titles of the panels

  const themed = (layout) => {
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(name).trim();
    const result = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--ink"), size: 13, family: getComputedStyle(document.body).fontFamily },
      hoverlabel: { bgcolor: colour("--band"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
    };
    for (const key of Object.keys(layout)) {
      if (!/^[xy]axis\d*$/.test(key)) continue;
      result[key] = {
        ...layout[key],
        gridcolor: colour("--grid"),
        zerolinecolor: colour("--grid"),
        linecolor: colour("--line"),
        automargin: true,
      };
    }
    return result;
  };

  // A legend of several lines, as on a narrow screen, gets the height that it takes.
  const makeRoom = (div, layout) => {
    const legend = div.querySelector(".legend");
    const more = legend ? legend.getBoundingClientRect().height + LEGEND_GAP_PX - layout.margin.t : 0;
    if (more > 0) Plotly.relayout(div, { "margin.t": layout.margin.t + more, height: layout.height + more });
  };

  const draw = () => {
    figures.forEach(async (figure, index) => {
      const div = document.getElementById(`figure-${index}`);
      await Plotly.react(div, figure.data, themed(figure.layout), config);
      makeRoom(div, figure.layout);
    });
  };
  // Rows are sorted within their section, numbers by what they are worth; a third click restores the order.
  const worth = (cell) => {
    const text = cell.textContent.replace(/[✓✗,]/g, "").trim();
    const number = parseFloat(text);
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1; // "never" and "-" come last
  };
  const sortable = (table) => {
    const body = table.tBodies[0];
    const asMade = [...body.rows];
    const sort = (head, column) => {
      const order = { ascending: "descending", descending: "none" }[head.ariaSort] ?? "ascending";
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
      head.ariaSort = order === "none" ? null : order;
      const way = order === "descending" ? -1 : 1;
      const groups = [[]];
      for (const row of asMade) {
        if (row.classList.contains("section")) groups.push([]);
        groups.at(-1).push(row);
      }
      for (const group of groups) {
        const rows = group.filter((row) => !row.classList.contains("section"));
        if (order !== "none") rows.sort((a, b) => way * compare(worth(a.cells[column]), worth(b.cells[column])));
        body.append(...group.filter((row) => row.classList.contains("section")), ...rows);
      }
    };
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.tabIndex = 0;
      head.addEventListener("click", () => sort(head, column));
      head.addEventListener("keydown", (event) => event.key === "Enter" && sort(head, column));
    });
  };
  document.querySelectorAll("table.sortable").forEach(sortable);

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
