// Flame graphs: hover, zoom and search for every svg.flame of the document, and tabs for every .flames; touches
// nothing else. A click on a frame widens it to the full width, a click on the root or "Reset zoom" shows all.
"use strict";
(() => {
  const character = 7.25; // of the 12 px monospace that the frames' text is set in
  const cells = (text) => Array.from(text).reduce((n, c) => n + (c.codePointAt(0) < 0x1100 ? 1 : 2), 0);
  const cut = (name, fits) => {
    if (fits < 3) return "";
    if (cells(name) <= fits) return name;
    let room = fits - 2;
    let kept = "";
    for (const c of name) {
      room -= cells(c);
      if (room < 0) break;
      kept += c;
    }
    return kept + "..";
  };

  const bring = (flame) => {
    const part = (name) => flame.querySelector("." + name);
    const area = part("frames");
    const width = Number(area.getAttribute("width"));
    const frames = Array.from(area.children, (g) => {
      const rect = g.querySelector("rect");
      const title = g.querySelector("title").textContent;
      return {
        g, rect, title,
        text: g.querySelector("text"),
        name: title.replace(/ \([^(]*\)$/, ""),
        x: Number(rect.getAttribute("data-x")),
        w: Number(rect.getAttribute("data-w")),
        y: Number(rect.getAttribute("y")),
      };
    });
    const root = frames[0];
    let shown = root;
    let sought = null;

    const place = (frame, x, share) => {
      frame.rect.setAttribute("x", 100 * x + "%");
      frame.rect.setAttribute("width", 100 * share + "%");
      const text = cut(frame.name, Math.floor((share * width - 3) / character));
      if (!frame.text && text) {
        frame.text = frame.g.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "text"));
        frame.text.setAttribute("y", frame.y + 12);
      }
      if (frame.text) {
        frame.text.setAttribute("x", 100 * x + 300 / width + "%");
        frame.text.textContent = text;
      }
    };
    const zoom = (to) => {
      shown = to;
      for (const frame of frames) {
        // The root is at the bottom: what is lower than the frame carries it.
        const below = frame.y > to.y;
        const carries = below && frame.x <= to.x && frame.x + frame.w >= to.x + to.w;
        const inside = !below && frame.x >= to.x && frame.x + frame.w <= to.x + to.w;
        frame.g.classList.toggle("parent", carries);
        frame.g.classList.toggle("hide", !carries && !inside);
        if (carries) place(frame, 0, 1);
        if (inside) place(frame, (frame.x - to.x) / to.w, frame.w / to.w);
      }
      part("unzoom").classList.toggle("hide", to === root);
      seek();
    };

    // Marks what is sought, and says how much of what is shown it holds: each part once, however often a stack has it.
    const seek = () => {
      const hits = [];
      for (const frame of frames) {
        const hit = sought !== null && sought(frame.name);
        frame.g.classList.toggle("hit", hit);
        const seen = !frame.g.classList.contains("hide") && !frame.g.classList.contains("parent");
        if (hit && seen) hits.push(frame);
      }
      hits.sort((a, b) => a.x - b.x || b.w - a.w);
      let held = 0;
      let end = -1;
      for (const hit of hits) {
        if (hit.x < end) continue;
        held += hit.w;
        end = hit.x + hit.w;
      }
      part("search").textContent = sought === null ? "Search" : "Reset search";
      // What is folded has no names, and may hold more of it.
      const least = area.hasAttribute("data-folded") ? "at least " : "";
      const share = (100 * held / shown.w).toFixed(2);
      part("matched").textContent = sought === null ? "" : "matched " + least + share + " %";
    };
    const search = () => {
      if (sought !== null) {
        sought = null;
      } else {
        const term = prompt("Which frames? A part of their names, or a regular expression such as ^nvme_", "");
        if (!term) return;
        try {
          const pattern = new RegExp(term);
          sought = (name) => pattern.test(name);
        } catch {
          sought = (name) => name.includes(term);
        }
      }
      seek();
    };

    for (const frame of frames) {
      frame.g.addEventListener("click", () => zoom(frame));
      frame.g.addEventListener("mouseover", () => { part("details").textContent = frame.title; });
      frame.g.addEventListener("mouseout", () => { part("details").textContent = ""; });
    }
    part("unzoom").addEventListener("click", () => zoom(root));
    part("search").addEventListener("click", search);
    // A file of its own has no other use for these keys; a page has.
    if (document.documentElement === flame) {
      document.addEventListener("keydown", (event) => {
        if (event.key === "F3" || (event.ctrlKey && event.key === "f")) {
          event.preventDefault();
          search();
        } else if (event.key === "Escape") {
          zoom(root);
        }
      });
    }
    flame.classList.add("live");
  };

  const tab = (flames) => {
    const panes = Array.from(flames.querySelectorAll(".pane"));
    if (panes.length < 2) return;
    const list = document.createElement("div");
    list.setAttribute("role", "tablist");
    const tabs = panes.map((pane) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("role", "tab");
      button.textContent = pane.querySelector("h3").textContent;
      list.append(button);
      return button;
    });
    const choose = (chosen) => {
      for (const [i, pane] of panes.entries()) {
        pane.classList.toggle("off", i !== chosen);
        tabs[i].setAttribute("aria-selected", String(i === chosen));
      }
    };
    for (const [i, button] of tabs.entries()) button.addEventListener("click", () => choose(i));
    flames.prepend(list);
    flames.classList.add("tabbed");
    choose(0);
  };

  for (const flame of document.querySelectorAll("svg.flame")) bring(flame);
  for (const flames of document.querySelectorAll(".flames")) tab(flames);
})();
