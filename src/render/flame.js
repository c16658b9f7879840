// Zoom for inline flame graphs: a click on a frame widens it to the full width, a click on the
// root shows all. Serves every svg.flame of the page; touches nothing else.
"use strict";
for (const flame of document.querySelectorAll("svg.flame")) {
  const area = flame.querySelector(".frames");
  const width = Number(area.getAttribute("width"));
  const character = 7.08; // of the 12 px monospace that the frames' text is set in
  const frames = Array.from(area.children, (g) => {
    const rect = g.querySelector("rect");
    return {
      g, rect,
      text: g.querySelector("text"),
      name: g.querySelector("title").textContent.replace(/ \([^(]*\)$/, ""),
      x: Number(rect.getAttribute("fg:x")),
      w: Number(rect.getAttribute("fg:w")),
      y: Number(rect.getAttribute("y")),
    };
  });
  const place = (frame, x, share) => {
    frame.rect.setAttribute("x", 100 * x + "%");
    frame.rect.setAttribute("width", 100 * share + "%");
    frame.text.setAttribute("x", 100 * x + 300 / width + "%");
    const fit = Math.floor((share * width - 3) / character);
    const cut = frame.name.length <= fit ? frame.name : frame.name.slice(0, fit - 2) + "..";
    frame.text.textContent = fit < 3 ? "" : cut;
  };
  const zoom = (to) => {
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
  };
  for (const frame of frames) frame.g.addEventListener("click", () => zoom(frame));
}
