// Draws the figures in the colours of the page, and again when the reader's theme changes.
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

  const themed = (layout) => {
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(name).trim();
    const result = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--ink"), size: 13, family: getComputedStyle(document.body).fontFamily },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--ink") },
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

  const draw = () => {
    figures.forEach((figure, index) => {
      Plotly.react(document.getElementById(`figure-${index}`), figure.data, themed(figure.layout), config);
    });
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
