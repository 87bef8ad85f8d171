// The page's own script: draws the figures in the theme of the moment, and serves its controls.
// Names come from profiles: they reach the page as textContent only.
"use strict";
(() => {
  // The rows of a table as it is sent, read by the names of its columns.
  const rowsOf = ({ columns, rows }) =>
    rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, row[place]])));
  const data = JSON.parse(document.getElementById("data").textContent);
  const parts = new Map(rowsOf(data.parts).map((part) => [part.name, part]));
  const kernelRows = rowsOf(data.kernels);
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const views = new Map();
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  const NARROW = 600;

  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : media.matches);
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function config(key) {
    const narrow = window.innerWidth < NARROW;
    const ink = colour("--ink"), soft = colour("--soft"), line = colour("--line");
    return {
      background: "transparent",
      font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
      view: { stroke: null },
      axis: {
        labelColor: ink, titleColor: soft, domainColor: line, gridColor: line, tickColor: line, gridOpacity: 0.6,
        labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
      },
      axisY: { grid: key.startsWith("launch-gaps"), labelLimit: narrow ? 150 : 260 },
      axisX: { tickCount: narrow ? 4 : 8, labelOverlap: true },
      bar: { stroke: colour("--ground"), strokeWidth: 0.6 },
      circle: { stroke: colour("--ground"), strokeWidth: 1 },
      rule: { color: ink },
      line: { color: soft },
      text: { color: ink, fontSize: 12 },
      legend: { labelColor: ink, titleColor: soft, labelFontSize: 12 },
    };
  }

  async function draw(element) {
    const key = element.dataset.figure;
    const spec = structuredClone(data.figures[key]);
    if (window.innerWidth < NARROW) narrow(element, spec);
    if (document.querySelector(`#f-${key} .legend`)) without(spec, "legend", null);
    if (dark()) shades(spec);
    const old = views.get(key);
    const { view } = await vegaEmbed(element, spec, {
      mode: "vega-lite", renderer: "svg", config: config(key), tooltip: { theme: dark() ? "dark" : "light" },
      actions: false, ast: false,
    });
    if (old) old.finalize();
    views.set(key, view);
    element.setAttribute("data-drawn", "");
    if (key === "waterfall" && chosen) show(chosen);
  }

  // The specifications have the colours of a light ground.
  const SHADES = new Map([...parts.values()].map((part) => [part.light, part.dark]));
  function shades(spec) {
    for (const [field, inner] of Object.entries(spec)) {
      if (SHADES.has(inner)) spec[field] = SHADES.get(inner);
      else if (inner && typeof inner === "object" && field !== "values") shades(inner);
    }
  }

  // On a phone the names of bars are above them, in higher rows.
  function narrow(element, spec) {
    without(spec, "labelLimit", undefined);
    if (element.dataset.figure === "sweep") twoLines(element, spec);
    if (!JSON.stringify(spec).includes('"height":{"band"')) return;
    without(spec, "band", 0.4);
    spec.height *= 1.5;
    without(spec, "ticks", false);
    const above = { labelAlign: "left", labelPadding: -2, labelOffset: -14, labelLimit: 330, zindex: 1, domain: false };
    for (const layer of spec.layer || [spec]) Object.assign(layer.encoding.y.axis ||= {}, above);
  }

  // Labels of the heat map: the implementation, and below it what differs.
  function twoLines(element, spec) {
    const cut = (text) => `(length(${text}) > 25 ? slice(${text}, 0, 12) + '…' + slice(${text}, -12) : ${text})`;
    const [first, rest] = ["split(datum.label, ', ')[0]", "join(slice(split(datum.label, ', '), 1), ', ')"];
    for (const layer of spec.layer) {
      const axis = layer.encoding.y.axis;
      Object.assign(axis, { labelExpr: `[${cut(first)}, ${cut(rest)}]`, labelLimit: 170, labelFontSize: 11, labelOffset: -6 });
    }
    spec.height *= 1.3;
  }

  // Sets a field wherever a specification has it.
  function without(spec, field, value) {
    if (!spec || typeof spec !== "object") return;
    if (field in spec && !Array.isArray(spec)) spec[field] = value;
    for (const inner of Object.values(spec)) without(inner, field, value);
  }

  async function drawAll() {
    for (const element of document.querySelectorAll("figure:not([hidden]) .chart")) {
      if (!element.closest("details:not([open])")) await draw(element);
    }
    timeline?.redraw();
    root.setAttribute("data-ready", "");
  }

  // A chart in a closed fold has no width: it is drawn when the fold opens.
  for (const fold of document.querySelectorAll("details.group, details.section")) {
    fold.addEventListener("toggle", () => {
      for (const element of fold.querySelectorAll("figure:not([hidden]) .chart:not([data-drawn])")) draw(element);
      if (fold.open) timeline?.redraw();
    });
  }

  // A link into a closed fold opens it.
  function unfold() {
    const target = location.hash.length > 1 && byId(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    const own = target.querySelector(":scope > details.section");
    if (own) own.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);

  // One of many figures of a section
  for (const select of document.querySelectorAll("select.figures")) {
    const keys = [...select.options].map((o) => o.value).filter(Boolean);
    const pick = () => {
      for (const key of keys) byId(`f-${key}`).hidden = select.value !== "" && select.value !== key;
    };
    select.addEventListener("change", () => { pick(); drawAll(); });
    pick();
  }

  // Theme
  const button = byId("theme");
  function labelTheme() {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(dark()));
  }
  function setTheme(theme) {
    root.dataset.theme = theme;
    labelTheme();
    return drawAll();
  }
  button.addEventListener("click", () => setTheme(dark() ? "light" : "dark"));
  media.addEventListener("change", () => { if (!root.dataset.theme) { labelTheme(); drawAll(); } });
  labelTheme();

  function option(select, value, text) {
    const one = document.createElement("option");
    one.value = String(value);
    one.textContent = text;
    select.append(one);
  }

  // The waterfall between two runs
  let chosen = null;
  const [one, other] = [byId("pair-one"), byId("pair-other")];

  function partners(run) {
    return data.pairs.flatMap((p) => (p.fast === run ? [p.slow] : p.slow === run ? [p.fast] : []));
  }
  function fillOthers() {
    const before = other.value;
    other.replaceChildren();
    for (const run of partners(one.value)) option(other, run, run);
    if ([...other.options].some((o) => o.value === before)) other.value = before;
  }
  function choose() {
    const pair = data.pairs.find(
      (p) => (p.fast === one.value && p.slow === other.value) || (p.slow === one.value && p.fast === other.value));
    if (pair) show(pair);
  }
  function show(pair) {
    chosen = pair;
    const said = document.createElement("bdi");
    said.textContent = pair.said;
    byId("pair-said").replaceChildren(said);
    byId("pair-caption").textContent = pair.caption;
    document.querySelector("[data-figure=waterfall]").setAttribute("aria-label", "Waterfall chart. " + pair.said);
    const view = views.get("waterfall");
    if (!view) return;
    view.data("rows", rowsOf(pair.bars)).runAsync();
  }
  if (one && data.pairs.length) {
    const runs = [...new Set(data.pairs.flatMap((p) => [p.fast, p.slow]))];
    one.replaceChildren();
    for (const run of runs) option(one, run, run);
    one.value = data.pairs[0].fast;
    fillOthers();
    other.value = data.pairs[0].slow;
    one.addEventListener("change", () => { fillOthers(); choose(); });
    other.addEventListener("change", choose);
  }

  const tables = window.lstmprofTables();

  // The kernel table
  const places = ["rank", "device"].filter((column) => new Set(kernelRows.map((row) => row[column])).size > 1);
  const body = document.querySelector("#kernels-table tbody");
  const number = (value, digits) =>
    value === null ? "–" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  function kernels() {
    const run = byId("kernels-run").value;
    const wanted = byId("kernels-search").value.toLowerCase();
    const all = kernelRows.filter((kernel) => kernel.run === run);
    const rows = all.map(kernelRow).filter((row) => row.textContent.toLowerCase().includes(wanted));
    byId("kernels-count").textContent = `${rows.length} of ${all.length}`;
    body.replaceChildren(...rows);
    tables.resort(body.parentElement);
  }
  function kernelRow({ name, category, count, total_ns, p50_ns, share, ...at }) {
    const row = document.createElement("tr");
    const cells = [
      [number(total_ns / 1e6, 3), "n"], [share === null ? "–" : number(100 * share, 1) + " %", "n"],
      [number(count, 0), "n"], [number(p50_ns / 1e3, 1), "n"], [category || "–", "category"],
      ...places.map((column) => [at[column] === null ? "–" : String(at[column]), "n"]), [name, "name"],
    ];
    for (const [text, kind] of cells) {
      const cell = document.createElement("td");
      cell.className = kind;
      const inner = document.createElement("bdi");
      inner.textContent = text;
      if (kind === "category") {
        const square = document.createElement("i");
        const part = parts.get(text) || parts.get("other");
        square.style.setProperty("--light", part.light);
        square.style.setProperty("--dark", part.dark);
        cell.append(square);
        inner.textContent = parts.get(text)?.words || text;
      }
      if (kind === "name") {
        cell.title = text;
        cell.tabIndex = 0;
      }
      cell.append(inner);
      row.append(cell);
    }
    return row;
  }
  if (body) {
    byId("kernels-run").addEventListener("change", kernels);
    byId("kernels-search").addEventListener("input", kernels);
    kernels();
  }

  // The timeline
  const timeline = window.lstmprofTimeline?.(rowsOf, parts, colour, dark);

  window.lstmprofIcicle?.(rowsOf, data.stacks, parts);

  let width = window.innerWidth, waiting = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 150);
  });
  let before, folds = [];
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    folds = [...document.querySelectorAll("main details:not([open])")];
    for (const fold of folds) fold.open = true;
    if (dark()) setTheme("light");
  });
  window.addEventListener("afterprint", () => {
    for (const fold of folds) fold.open = false;
    if (before) setTheme(before);
    else if (root.dataset.theme) { delete root.dataset.theme; labelTheme(); drawAll(); }
  });
  unfold();
  drawAll();
})();
