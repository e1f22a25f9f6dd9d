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
  // Sorted by what numbers are worth, rows within their section; a third choice restores the order.
  const worth = (cell) => {
    const text = cell.textContent.replace(/[✓✗,]/g, "").trim();
    const number = parseFloat(text);
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1; // "never" and "-" come last
  };
  const nextOrder = (head, heads) => {
    const order = { ascending: "descending", descending: "none" }[head.ariaSort] ?? "ascending";
    for (const other of heads) other.ariaSort = null;
    head.ariaSort = order === "none" ? null : order;
    return order;
  };
  const onChoice = (head, act) => {
    head.tabIndex = 0;
    head.addEventListener("click", act);
    head.addEventListener("keydown", (event) => event.key === "Enter" && act());
  };
  const sortRows = (table) => {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const asMade = [...body.rows];
    const isHeading = (row) => row.classList.contains("section");
    const sort = (head, column) => {
      const order = nextOrder(head, heads);
      const way = order === "descending" ? -1 : 1;
      const groups = [[]];
      for (const row of asMade) {
        if (isHeading(row)) groups.push([]);
        groups.at(-1).push(row);
      }
      for (const group of groups) {
        const rows = group.filter((row) => !isHeading(row));
        if (order !== "none") rows.sort((a, b) => way * compare(worth(a.cells[column]), worth(b.cells[column])));
        body.append(...group.filter(isHeading), ...rows);
      }
    };
    heads.forEach((head, column) => onChoice(head, () => sort(head, column)));
  };
  // Metrics are rows and policies columns: these are put in the order of one metric; what a row means stays last.
  const sortColumns = (table) => {
    const rows = [table.tHead.rows[0], ...table.tBodies[0].rows].filter((row) => !row.classList.contains("section"));
    const asMade = new Map(rows.map((row) => [row, [...row.cells]]));
    const metrics = rows.slice(1).map((row) => row.cells[0]);
    const sort = (head) => {
      const order = nextOrder(head, metrics);
      const way = order === "descending" ? -1 : 1;
      const cells = asMade.get(head.parentNode);
      const policies = cells.map((_, at) => at).filter((at) => at > 0 && !cells[at].classList.contains("meaning"));
      if (order !== "none") policies.sort((a, b) => way * compare(worth(cells[a]), worth(cells[b])));
      for (const row of rows) {
        const made = asMade.get(row);
        row.append(made[0], ...policies.map((at) => made[at]), ...made.slice(1 + policies.length));
      }
    };
    for (const head of metrics) onChoice(head, () => sort(head));
  };
  const sortable = (table) => (table.dataset.sorts === "rows" ? sortRows : sortColumns)(table);
  document.querySelectorAll("table.sortable").forEach(sortable);

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
