// The timeline of one step on a canvas. A pixel that many events share has the colour of the part that has
// most of their time, or of the one looked for: a picture costs no more boxes than there are pixels.
"use strict";
window.lstmprofTimeline = (rowsOf, parts, colour, dark) => {
  const canvas = document.getElementById("timeline-canvas");
  if (!canvas) return null;
  const stored = [...document.querySelectorAll(".timeline-data")];
  const select = document.getElementById("timeline-run");
  const find = document.getElementById("timeline-find");
  const tip = document.getElementById("tip");
  const picked = document.getElementById("timeline-picked");
  const steps = document.getElementById("timeline-step"), found = document.getElementById("timeline-found");
  const MOST_ARROWS = 40;
  const HEIGHT = { account: 26, stream: 18, host: 13 }, LANE = 36, GAP = 4, LABEL = 15, AXIS = 22, LEAST_NS = 50;
  let step = null, from = 0, to = 1, tops = [], laneTops = [], firsts = [], drawn = 0;
  let chosen = -1, launched = new Map();
  const trackOf = (event) => step.track[event];

  function fillSteps() {
    steps.replaceChildren(...stored.flatMap(({ dataset }, place) => {
      if (dataset.run !== select.value) return [];
      const option = document.createElement("option");
      option.value = String(place);
      option.textContent = dataset.which;
      return [option];
    }));
    return load();
  }

  async function load() {
    const element = stored[Number(steps.value)];
    const bytes = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    step = await new Response(stream).json();
    step.tracks = rowsOf(step.tracks);
    let at = 0;
    step.start_ns = step.start_ns.map((difference) => (at += difference));
    for (const lane of step.lanes) {
      let ns = 0;
      lane.at_ns = lane.at_ns.map((difference) => (ns += difference));
    }
    layOut();
    chosen = -1;
    launched = new Map();
    step.launch.forEach((launch, event) => {
      if (launch >= 0) launched.set(launch, [...(launched.get(launch) || []), event]);
    });
    searched();
    [from, to] = [0, step.dur_ns];
    const events = step.track.length.toLocaleString("en");
    const left = step.left_out ? `; ${step.left_out.toLocaleString("en")} of the shortest or deepest are left out` : "";
    const which = step.step === null ? "The whole profile" : `Step ${step.step}`;
    document.getElementById("timeline-said").textContent =
      `${which} of ${step.run}: ${time(step.dur_ns, step.dur_ns)}, ${events} events${left}.`;
    canvas.setAttribute("aria-label", document.getElementById("timeline-said").textContent);
    redraw();
  }

  // Where each track begins, from the top and in the columns; the counters stand above the host's threads.
  function layOut() {
    let y = AXIS;
    const next = (high, label) => {
      const top = y + (label ? GAP + LABEL : 0);
      y = top + high;
      return top;
    };
    const host = step.tracks.findIndex(({ kind }) => kind === "host");
    const above = host < 0 ? step.tracks.length : host;
    const topOf = ({ label, kind }) => next(HEIGHT[kind], label);
    tops = step.tracks.slice(0, above).map(topOf);
    laneTops = step.lanes.map(({ label }) => next(LANE, label));
    tops.push(...step.tracks.slice(above).map(topOf));
    canvas.style.height = `${y + GAP}px`;
    firsts = [];
    let event = 0;
    for (let track = 0; track <= step.tracks.length; track++) {
      firsts.push(event);
      while (event < step.track.length && step.track[event] === track) event++;
    }
  }

  function time(ns, whole) {
    const [unit, per, digits] = whole >= 1e7 ? ["ms", 1e6, 2] : whole >= 1e4 ? ["µs", 1e3, 1] : ["ns", 1, 0];
    return `${(ns / per).toLocaleString("en", { maximumFractionDigits: digits })} ${unit}`;
  }

  function redraw() {
    if (!step) return;
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, width, height);
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.textBaseline = "middle";
    const theme = { ink: colour("--ink"), soft: colour("--soft"), line: colour("--line"), range: colour("--range") };
    axis(pen, width, height, theme);
    const wanted = find.value.toLowerCase();
    const match = wanted ? step.names.map((name) => name.toLowerCase().includes(wanted)) : null;
    drawn = 0;
    step.tracks.forEach(({ label, kind }, track) => {
      rows(pen, track, kind, width, theme, match);
      if (!label) return;
      pen.fillStyle = theme.soft;
      pen.fillText(label, 4, tops[track] - LABEL / 2);
    });
    step.lanes.forEach((lane, place) => counter(pen, lane, laneTops[place], width, theme));
    const arrows = flows().map(([launch, event]) => arrow(pen, launch, event, width, theme));
    if (chosen >= 0) frame(pen, chosen, width, theme);
    canvas.dataset.arrows = String(arrows.length);
    canvas.dataset.from = String(from);
    canvas.dataset.to = String(to);
    canvas.dataset.drawn = String(drawn);
  }

  // A counter's value holds until its next; from 0 on, or from its least where that is below.
  function counter(pen, { label, at_ns, values }, top, width, theme) {
    const least = Math.min(0, ...values), high = (LANE - 1) / (Math.max(...values, least + Number.MIN_VALUE) - least);
    const x = (ns) => Math.min(Math.max(((ns - from) / (to - from)) * width, 0), width);
    pen.fillStyle = theme.soft;
    pen.fillText(label, 4, top - LABEL / 2);
    if (!values.length || x(at_ns[0]) >= width) return;
    pen.fillStyle = theme.range;
    pen.beginPath();
    pen.moveTo(x(at_ns[0]), top + LANE);
    values.forEach((value, place) => {
      const y = top + LANE - Math.max((value - least) * high, 1);
      pen.lineTo(x(at_ns[place]), y);
      pen.lineTo(x(at_ns[place + 1] ?? step.dur_ns), y);
    });
    pen.lineTo(x(step.dur_ns), top + LANE);
    pen.fill();
  }

  function valueAt(x, y) {
    const lane = step.lanes[laneTops.findIndex((top) => y >= top && y < top + LANE)];
    if (!lane) return "";
    const ns = from + (x / canvas.clientWidth) * (to - from);
    const place = lane.at_ns.findLastIndex((at) => at <= ns);
    const name = lane.label.replace(/, at most .*$/, "");
    if (place < 0) return `${name}\nnot known yet`;
    const about = lane.left_out ? `\n${lane.left_out.toLocaleString("en")} values between others are not drawn` : "";
    return `${name}\n${amount(lane.values[place], lane.unit)}, from ${time(lane.at_ns[place], step.dur_ns)} on${about}`;
  }

  function amount(value, unit) {
    const [per, shown] = unit !== "bytes" ? [1, unit] : Math.abs(value) >= 1e4 ? [1e6, "MB"] : [1, "B"];
    return `${(value / per).toLocaleString("en", { maximumFractionDigits: 3 })} ${shown}`.trim();
  }

  // From a launch to what it launched: of the chosen event, and of all where few are in sight.
  function flows() {
    const inSight = (event) => step.start_ns[event] <= to && step.start_ns[event] + step.dur_ns_of[event] >= from;
    const of = (event) => [
      ...(launched.get(event) || []).map((other) => [event, other]),
      ...(step.launch[event] >= 0 ? [[step.launch[event], event]] : []),
    ];
    const all = [];
    for (const [launch, events] of launched) {
      for (const event of events) if (inSight(launch) || inSight(event)) all.push([launch, event]);
      if (all.length > MOST_ARROWS) break;
    }
    if (all.length <= MOST_ARROWS) return all;
    return chosen >= 0 ? of(chosen).slice(0, MOST_ARROWS) : [];
  }

  function arrow(pen, launch, event, width, theme) {
    const x = (ns) => ((ns - from) / (to - from)) * width;
    const middle = (one) => tops[trackOf(one)] + HEIGHT[step.tracks[trackOf(one)].kind] / 2;
    const [x0, y0] = [x(step.start_ns[launch] + step.dur_ns_of[launch]), middle(launch)];
    const [x1, y1] = [x(step.start_ns[event]), middle(event)], bend = Math.max(Math.abs(x1 - x0) / 2, 12);
    pen.strokeStyle = pen.fillStyle = theme.ink;
    pen.lineWidth = launch === chosen || event === chosen ? 2 : 1;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x1 - 6, y1 - 3);
    pen.lineTo(x1 - 6, y1 + 3);
    pen.fill();
  }

  function frame(pen, event, width, theme) {
    const scale = width / (to - from), track = trackOf(event);
    pen.strokeStyle = theme.ink;
    pen.lineWidth = 2;
    const left = (step.start_ns[event] - from) * scale, wide = Math.max(step.dur_ns_of[event] * scale, 2);
    pen.strokeRect(left, tops[track], wide, HEIGHT[step.tracks[track].kind] - 1);
  }

  function axis(pen, width, height, theme) {
    const ideal = (to - from) / Math.max(width / 110, 1), power = 10 ** Math.floor(Math.log10(ideal));
    const tick = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= ideal);
    pen.strokeStyle = theme.line;
    pen.fillStyle = theme.soft;
    pen.lineWidth = 1;
    for (let at = Math.ceil(from / tick) * tick; at <= to; at += tick) {
      const x = Math.round(((at - from) / (to - from)) * width) + 0.5;
      pen.beginPath();
      pen.moveTo(x, AXIS - 6);
      pen.lineTo(x, height);
      pen.stroke();
      const text = time(at, to - from + tick);
      if (x + 4 + pen.measureText(text).width < width) pen.fillText(text, x + 4, AXIS / 2);
    }
  }

  // Events of a track are in the order of their starts.
  function rows(pen, track, kind, width, theme, match) {
    const scale = width / (to - from), top = tops[track], high = HEIGHT[kind] - 1;
    let pixel = -1, inPixel = new Map();
    const flush = () => {
      if (!inPixel.size) return;
      const [most] = [...inPixel.values()].sort((a, b) => b.ns - a.ns);
      box(pen, most.event, pixel, 1, top, high, theme, match);
      inPixel = new Map();
    };
    for (let event = firsts[track]; event < firsts[track + 1]; event++) {
      const start = step.start_ns[event], end = start + step.dur_ns_of[event];
      if (start > to) break;
      if (end < from) continue;
      const left = Math.max((start - from) * scale, 0), right = Math.min((end - from) * scale, width);
      if (right - left >= 1) {
        box(pen, event, left, right - left - (right - left > 3 ? 0.6 : 0), top, high, theme, match);
        continue;
      }
      if (Math.floor(left) !== pixel) flush();
      pixel = Math.floor(left);
      const key = match && match[step.name[event]] ? "found" : step.part[event];
      const held = inPixel.get(key) || { ns: 0, event };
      held.ns += key === "found" ? Infinity : step.dur_ns_of[event];
      inPixel.set(key, held);
    }
    flush();
  }

  function box(pen, event, left, wide, top, high, theme, match) {
    const part = step.part[event];
    pen.globalAlpha = match && !match[step.name[event]] ? 0.15 : 1;
    pen.fillStyle = shade(part, theme);
    pen.fillRect(left, top, wide, high);
    drawn++;
    if (wide > 34 && high > 10) label(pen, step.names[step.name[event]], left, wide, top + high / 2, part, theme);
    pen.globalAlpha = 1;
  }

  function label(pen, text, left, wide, y, part, theme) {
    const room = Math.floor((wide - 8) / 6.2);
    if (room < 4) return;
    pen.fillStyle = luminance(shade(part, theme)) > 0.179 ? "#000000" : "#ffffff";
    pen.fillText(text.length > room ? text.slice(0, room - 1) + "…" : text, left + 4, y);
  }

  const shade = (part, theme) => (part < 0 ? theme.range : parts.get(step.parts[part])[dark() ? "dark" : "light"]);

  // Of WCAG 2.2; at 0.179 black and white contrast alike.
  function luminance(hex) {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function at(x, y) {
    const track = tops.findIndex((top, i) => y >= top && y < top + HEIGHT[step.tracks[i].kind]);
    if (track < 0) return -1;
    const ns = from + (x / canvas.clientWidth) * (to - from), near = (to - from) / canvas.clientWidth;
    let best = -1;
    for (let event = firsts[track]; event < firsts[track + 1] && step.start_ns[event] <= ns + near; event++) {
      if (step.start_ns[event] + step.dur_ns_of[event] >= ns - near) best = event;
    }
    return best;
  }

  function said(event) {
    const name = step.names[step.name[event]], part = step.part[event] < 0 ? "" : parts.get(step.parts[step.part[event]]).words;
    const long = step.dur_ns_of[event], start = step.start_ns[event];
    return `${name}${name.includes(part) ? "" : "\n" + part}\n${time(long, long)}, from ${time(start, step.dur_ns)} on`;
  }

  // All that the run keeps of it, a line each.
  function everything(event) {
    const told = Object.entries(step.facts).flatMap(
      ([name, { texts, places }]) => (places[event] < 0 ? [] : [`${name.replaceAll("_", " ")}: ${texts[places[event]]}`]));
    const launch = step.launch[event], others = launched.get(event) || [];
    if (launch >= 0) {
      const gap = step.start_ns[event] - step.start_ns[launch] - step.dur_ns_of[launch];
      const when = `${time(Math.abs(gap), Math.abs(gap))} ${gap < 0 ? "before" : "after"} its end`;
      told.push(`launched by ${step.names[step.name[launch]]}, started ${when}`);
    }
    if (others.length) told.push(`launches ${others.length === 1 ? step.names[step.name[others[0]]] : others.length + " activities"}`);
    return [said(event).replaceAll("\n", " · "), where(event), ...told].join("\n");
  }
  const where = (event) => {
    const track = trackOf(event), named = step.tracks.slice(0, track + 1).findLast(({ label }) => label);
    return `on ${named.label}`;
  };

  // The next event that is looked for, from the chosen one on; in the middle of the picture.
  let matches = [];
  function searched() {
    const wanted = find.value.toLowerCase();
    const match = step.names.map((name) => wanted !== "" && name.toLowerCase().includes(wanted));
    const real = (event) => step.tracks[step.track[event]].kind !== "account";
    matches = wanted ? [...step.name.keys()].filter((event) => match[step.name[event]] && real(event)) : [];
    matches.sort((a, b) => step.start_ns[a] - step.start_ns[b] || a - b);
    found.textContent = wanted ? `${matches.length.toLocaleString("en")} found` : "";
  }
  function jump(back) {
    if (!matches.length) return;
    const at = matches.indexOf(chosen);
    const next = at < 0 ? (back ? matches.length - 1 : 0) : (at + (back ? -1 : 1) + matches.length) % matches.length;
    choose(matches[next]);
    found.textContent = `${next + 1} of ${matches.length.toLocaleString("en")}`;
    const long = step.dur_ns_of[chosen], span = Math.min(to - from, Math.max(8 * long, (to - from) / 4));
    move(step.start_ns[chosen] + long / 2 - span / 2, span);
  }

  function zoom(factor, middle = 0.5) {
    const centre = from + middle * (to - from);
    const span = Math.min(Math.max((to - from) * factor, LEAST_NS), step.dur_ns);
    move(centre - middle * span, span);
  }
  function move(start, span = to - from) {
    from = Math.min(Math.max(start, 0), step.dur_ns - span);
    to = from + span;
    requestAnimationFrame(redraw);
  }

  const place = (event) => (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth;
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, place(event));
  }, { passive: false });

  const held = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, { x: place(event), first: place(event) });
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!step) return;
    const mine = held.get(event.pointerId);
    if (!mine) return hover(event);
    const before = [...held.values()].map((p) => p.x);
    const moved = place(event) - mine.x;
    mine.x = place(event);
    if (held.size === 2) {
      const after = [...held.values()].map((p) => p.x);
      const spread = Math.abs(after[0] - after[1]);
      if (spread > 0.02) zoom(Math.abs(before[0] - before[1]) / spread, (after[0] + after[1]) / 2);
    } else move(from - moved * (to - from));
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => {
    const mine = held.get(event.pointerId);
    held.delete(event.pointerId);
    if (name === "pointerup" && mine && Math.abs(mine.x - mine.first) < 0.005) pick(event);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });

  function eventAt(event) {
    const box = canvas.getBoundingClientRect();
    return at(event.clientX - box.left, event.clientY - box.top);
  }
  function hover(event) {
    const found = eventAt(event), box = canvas.getBoundingClientRect();
    const told = found < 0 ? valueAt(event.clientX - box.left, event.clientY - box.top) : said(found);
    tip.hidden = !told;
    if (!told) return;
    tip.textContent = told;
    tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8)}px`;
  }
  function pick(event) {
    canvas.focus({ preventScroll: true });
    const found = eventAt(event);
    if (found >= 0) choose(found);
  }
  function choose(event) {
    chosen = event;
    picked.textContent = everything(event);
    requestAnimationFrame(redraw);
  }

  const [closer, wider] = [() => zoom(0.5), () => zoom(2)];
  const [left, right] = [() => move(from - 0.1 * (to - from)), () => move(from + 0.1 * (to - from))];
  const KEYS = {
    ArrowLeft: left, ArrowRight: right, a: left, d: right, "+": closer, "=": closer, w: closer, "-": wider, s: wider,
    Home: () => move(0, step.dur_ns),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!step || !KEYS[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  const BUTTONS = { in: closer, out: wider, all: () => move(0, step.dur_ns) };
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => step && BUTTONS[button.dataset.zoom]());
  }
  find.addEventListener("input", () => { if (step) { searched(); redraw(); } });
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !step) return;
    event.preventDefault();
    jump(event.shiftKey);
  });
  select.addEventListener("change", fillSteps);
  steps.addEventListener("change", load);
  fillSteps();
  return { redraw };
};
