// Call stacks, from the top down: each box is as wide as its time. Boxes are the items of a tree: the arrow keys move
// to the caller, the callees and the neighbours, Enter makes a box as wide as the picture, Escape goes back.
// A picture of two runs names them in fast and slow.
"use strict";
window.lstmprofIcicle = (rowsOf, stacks, parts) => {
  const tree = document.getElementById("stacks-tree");
  if (!tree) return;
  const byId = (id) => document.getElementById(`stacks-${id}`);
  const [select, kinds, find, found, said, picked] = ["run", "what", "find", "found", "said", "picked"].map(byId);
  const HIGH = 22, ROOT = -1;
  const percent = (share) => `${(100 * share).toLocaleString("en", { maximumSignificantDigits: share < 0.1 ? 2 : 3 })} %`;
  function time(ns) {
    const [unit, per, digits] = ns >= 1e6 ? ["ms", 1e6, 3] : ns >= 1e3 ? ["µs", 1e3, 1] : ["ns", 1, 0];
    return `${(ns / per).toLocaleString("en", { maximumFractionDigits: digits })} ${unit}`;
  }
  let shown = null, boxes = [], top = ROOT, current = 0, matches = [];

  function fillKinds() {
    const before = kinds.selectedOptions[0]?.textContent;
    kinds.replaceChildren(...stacks.flatMap(({ run, what }, place) => {
      if (run !== select.value) return [];
      const option = document.createElement("option");
      option.value = String(place);
      option.textContent = what;
      option.selected = what === before;
      return [option];
    }));
    load();
  }

  function load() {
    const { boxes: table, ...rest } = stacks[Number(kinds.value)];
    shown = { ...rest, boxes: rowsOf(table) };
    const ends = new Map();
    shown.boxes.forEach((box, place) => {
      const around = shown.boxes[box.above];
      box.depth = around ? around.depth + 1 : 0;
      box.left = ends.get(box.above) ?? (around ? around.left : 0);
      ends.set(box.above, box.left + box.total_ns);
      box.inside = [];
      around?.inside.push(place);
    });
    boxes = shown.boxes.map(button);
    tree.replaceChildren(...boxes);
    said.textContent = shown.said;
    for (const one of document.querySelectorAll("#stacks [data-of]")) one.hidden = (one.dataset.of === "pair") !== Boolean(shown.slow);
    [top, current] = [ROOT, 0];
    if (boxes.length) boxes[0].tabIndex = 0;
    picked.textContent = picked.dataset.hint;
    search();
    layOut();
  }

  function button(box, place) {
    const made = document.createElement("button");
    made.type = "button";
    made.tabIndex = -1;
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", String(box.depth + 1));
    made.setAttribute("aria-label", shown.slow ? told(box).join(", ") : `${shown.names[box.name]}, ${time(box.total_ns)}, ${percent(box.total_ns / shown.total_ns)}`);
    made.textContent = shown.names[box.name];
    made.title = told(box).join("\n");
    const part = box.part < 0 ? null : parts.get(shown.parts[box.part]);
    if (part) {
      made.className = "part";
      made.style.setProperty("--light", part.light);
      made.style.setProperty("--dark", part.dark);
    }
    if (shown.slow) {
      made.className = box.slow_ns < box.fast_ns ? "pair less" : "pair";
      made.style.setProperty("--by", Math.abs(box.slow_ns - box.fast_ns) / Math.max(box.slow_ns, box.fast_ns));
    }
    made.addEventListener("click", () => { choose(place); zoom(place === top ? ROOT : place); });
    made.addEventListener("focus", () => choose(place));
    return made;
  }

  function told(box) {
    const part = box.part < 0 ? [] : [parts.get(shown.parts[box.part]).words];
    if (shown.slow) {
      const more = box.slow_ns - box.fast_ns;
      const difference = more ? `${time(Math.abs(more))} ${more > 0 ? "more" : "less"} in ${shown.slow}` : "no difference";
      return [shown.names[box.name], `${shown.slow} ${time(box.slow_ns)}`, `${shown.fast} ${time(box.fast_ns)}`, difference];
    }
    const inside = box.total_ns - box.self_ns;
    return [
      shown.names[box.name], ...part, `${time(box.total_ns)}, ${percent(box.total_ns / shown.total_ns)} of all`,
      inside ? `${time(box.self_ns)} of it outside its callees` : "no callees",
    ];
  }

  // The boxes beneath the one on top fill the picture; those around it are as wide as it.
  function layOut() {
    const [start, span] = top === ROOT ? [0, shown.total_ns] : [shown.boxes[top].left, shown.boxes[top].total_ns];
    const around = new Set();
    for (let at = top; at >= 0; at = shown.boxes[at].above) around.add(at);
    let deepest = 0;
    shown.boxes.forEach((box, place) => {
      const made = boxes[place], left = (box.left - start) / span, wide = box.total_ns / span;
      const above = around.has(place) && place !== top;
      made.hidden = !above && (left >= 1 - 1e-9 || left + wide <= 1e-9 || (top >= 0 && box.depth < shown.boxes[top].depth));
      if (made.hidden) return;
      deepest = Math.max(deepest, box.depth + 1);
      made.style.left = above ? "0" : `${100 * left}%`;
      made.style.width = above ? "100%" : `${100 * wide}%`;
      made.style.top = `${box.depth * HIGH}px`;
      made.classList.toggle("around", above);
    });
    tree.style.height = `${deepest * HIGH}px`;
    tree.dataset.top = String(top);
  }

  function zoom(place) {
    top = place;
    layOut();
  }

  function choose(place) {
    boxes[current].tabIndex = -1;
    boxes[current].removeAttribute("aria-selected");
    current = place;
    boxes[current].tabIndex = 0;
    boxes[current].setAttribute("aria-selected", "true");
    picked.textContent = told(shown.boxes[current]).join(" · ");
  }

  function go(place) {
    if (place === undefined || place < 0) return;
    if (boxes[place].hidden) zoom(ROOT);
    choose(place);
    boxes[place].focus();
  }

  const beside = (step) => {
    const { above } = shown.boxes[current];
    const all = above < 0 ? shown.boxes.flatMap((box, place) => (box.above < 0 ? [place] : [])) : shown.boxes[above].inside;
    return all[all.indexOf(current) + step];
  };
  const KEYS = {
    ArrowUp: () => go(shown.boxes[current].above), ArrowDown: () => go(shown.boxes[current].inside[0]),
    ArrowLeft: () => go(beside(-1)), ArrowRight: () => go(beside(1)),
    Home: () => go(0), Escape: () => zoom(ROOT),
  };
  tree.addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  // What is looked for stands out; a box inside another that is found is not counted again.
  function search() {
    const wanted = find.value.toLowerCase();
    const is = shown.names.map((name) => wanted !== "" && name.toLowerCase().includes(wanted));
    matches = shown.boxes.flatMap((box, place) => (is[box.name] ? [place] : []));
    const matching = new Set(matches);
    const outer = matches.filter((place) => {
      for (let at = shown.boxes[place].above; at >= 0; at = shown.boxes[at].above) if (matching.has(at)) return false;
      return true;
    });
    boxes.forEach((made, place) => made.classList.toggle("dim", wanted !== "" && !matching.has(place)));
    const ns = outer.reduce((sum, place) => sum + shown.boxes[place].total_ns, 0);
    found.textContent = wanted ? `${matches.length} found, ${percent(ns / shown.total_ns)}` : "";
  }
  find.addEventListener("input", search);
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !matches.length) return;
    event.preventDefault();
    const at = matches.indexOf(current), step = event.shiftKey ? -1 : 1;
    const next = at < 0 ? 0 : (at + step + matches.length) % matches.length;
    if (boxes[matches[next]].hidden) zoom(ROOT);
    choose(matches[next]);
  });
  byId("whole").addEventListener("click", () => zoom(ROOT));
  select.addEventListener("change", fillKinds);
  kinds.addEventListener("change", load);
  fillKinds();
};
