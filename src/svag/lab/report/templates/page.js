"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const charts = read("charts"), looks = read("looks");
  const night = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();

  const look = (place) => {
    const config = structuredClone(night.matches ? looks.dark : looks.light);
    const narrow = place.clientWidth < 560;
    config.legend.columns = narrow ? 1 : 4;
    config.legend.layout = { top: { direction: narrow ? "vertical" : "horizontal" } };
    return config;
  };

  // The store of the selection `shown` is what both the legend and the boxes change; each follows the other through it.
  const boxes = (name, view) => {
    const field = document.getElementById("series-" + name);
    field.querySelectorAll("label").forEach((label) => label.remove());
    let all;
    try { all = view.data("shown_store").slice(); } catch { return; }
    const series = all.map((tuple) => String(tuple.values[0]));
    if (series.length < 2) return;
    const inputs = all.map((tuple, i) => {
      const label = document.createElement("label"), input = document.createElement("input");
      input.type = "checkbox";
      input.checked = true;
      label.append(input, " ", series[i]);
      field.append(label);
      input.addEventListener("change", () => {
        view.data("shown_store", all.filter((_, j) => inputs[j].checked)).runAsync();
      });
      return input;
    });
    view.addDataListener("shown_store", (_, tuples) => {
      const now = new Set(tuples.map((tuple) => String(tuple.values[0])));
      inputs.forEach((input, i) => { input.checked = now.has(series[i]); });
    });
    field.hidden = false;
  };

  const draw = async ({name, spec}) => {
    const place = document.getElementById("chart-" + name);
    if (drawn.has(name)) drawn.get(name).finalize();
    const result = await window.vegaEmbed(place, structuredClone(spec), {
      mode: "vega-lite",
      renderer: "svg",
      config: look(place),
      tooltip: {theme: night.matches ? "dark" : "light"},
      actions: {export: true, source: false, compiled: false, editor: false},
      downloadFileName: name,
    });
    drawn.set(name, result);
    boxes(name, result.view);
    place.dataset.drawn = "yes";
  };

  const all = () => Promise.all(charts.map((one) => draw(one).catch((error) => {
    document.getElementById("chart-" + one.name).textContent = "This chart could not be drawn: " + error.message;
    console.error(error);
  })));
  night.addEventListener("change", all);
  all().then(() => { document.body.dataset.ready = "yes"; });
})();
