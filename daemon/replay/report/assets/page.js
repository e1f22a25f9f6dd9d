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
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
