//! Tests flame graphs in a browser from `file://`: hover, click to zoom, search, reset, tabs, and hostile names. A
//! script at the end of the page acts as a reader, with the element that is really under the pointer, and writes its
//! results into the page, which Chromium prints.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::skip::skipped;
use biopsy::analyze::flame_diff::{Basis, DiffSide, compare};
use biopsy::analyze::profile::{Profile, Unit, folded};
use biopsy::render::flame::{self, Caption, Options};
use biopsy::render::flame_diff;
use serde_json::Value;

const HOSTILE: &str = "</text><script>window.pwned=1</script><img src=x onerror=\"window.pwned=1\">";

/// The script of the reader. `pointed` is the frame under the pointer at the place where a frame is drawn.
const READER: &str = r#"
const seen = {};
try {
  const of = (flame, name) => Array.from(flame.querySelectorAll(".frames > g"))
    .find((g) => g.querySelector("title").textContent.startsWith(name + " ("));
  const at = (element, kind) => {
    const box = element.getBoundingClientRect();
    const under = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    (under || element).dispatchEvent(new MouseEvent(kind, { bubbles: true }));
    return under === element;
  };
  const hidden = (flame) => flame.querySelectorAll(".frames > g.hide").length;
  const text = (flame, part) => flame.querySelector("." + part).textContent;
  const shown = (flame, part) => getComputedStyle(flame.querySelector("." + part)).display !== "none";
  const flames = Array.from(document.querySelectorAll("svg.flame"));
  const flame = flames[0];
  seen.live = flames.map((flame) => flame.classList.contains("live"));
  const frame = of(flame, "do_io");
  const rect = frame.querySelector("rect");

  seen.pointed = at(rect, "mouseover");
  seen.hover = text(flame, "details");
  at(rect, "mouseout");
  seen.left = text(flame, "details");

  seen.width = rect.getAttribute("width");
  seen.reset_before = shown(flame, "unzoom");
  at(rect, "click");
  seen.zoomed = { width: rect.getAttribute("width"), hidden: hidden(flame), reset: shown(flame, "unzoom"),
    text: of(flame, "a_long_name_of_a_function").querySelector("text").textContent,
    parent: of(flame, "fio").classList.contains("parent"), on_screen: rect.getBoundingClientRect().width };

  window.prompt = () => "^(get|nvme)_";
  at(flame.querySelector(".search"), "click");
  seen.searched_zoomed = text(flame, "matched");
  at(flame.querySelector(".unzoom"), "click");
  seen.unzoomed = { width: rect.getAttribute("width"), hidden: hidden(flame), reset: shown(flame, "unzoom") };
  seen.searched = { matched: text(flame, "matched"), label: text(flame, "search"),
    hits: Array.from(flame.querySelectorAll(".hit title"), (t) => t.textContent.split(" (")[0]),
    others: flames.slice(1).map((flame) => flame.querySelectorAll(".hit").length),
    fill: getComputedStyle(of(flame, "get_io_u").querySelector("rect")).fill };
  at(flame.querySelector(".search"), "click");
  seen.search_reset = { matched: text(flame, "matched"), label: text(flame, "search"),
    hits: flame.querySelectorAll(".hit").length };
  // No regular expression: taken as it is. And nobody has to answer.
  window.prompt = () => "(((";
  at(flame.querySelector(".search"), "click");
  seen.no_expression = text(flame, "matched");
  at(flame.querySelector(".search"), "click");
  window.prompt = () => null;
  at(flame.querySelector(".search"), "click");
  seen.cancelled = text(flame, "search");

  // The root shows all as well.
  at(of(flame, "get_io_u").querySelector("rect"), "click");
  at(of(flame, "all").querySelector("rect"), "click");
  seen.all = { hidden: hidden(flame), reset: shown(flame, "unzoom") };

  const panes = Array.from(document.querySelectorAll(".pane"));
  const visible = () => panes.map((pane) => getComputedStyle(pane).display !== "none");
  seen.tabs = Array.from(document.querySelectorAll("[role=tab]"), (tab) => tab.textContent);
  seen.visible = visible();
  if (panes.length) {
    at(document.querySelectorAll("[role=tab]")[1], "click");
    seen.second = visible();
    at(of(flames[1], "do_io").querySelector("rect"), "click");
    seen.zoomed_second = [hidden(flames[0]), hidden(flames[1]) > 0];
  }
} catch (error) {
  seen.error = String(error);
}
seen.pwned = typeof window.pwned;
document.documentElement.setAttribute("data-seen", JSON.stringify(seen));
"#;

fn profile() -> Profile {
    let text = "fio;main;do_io;get_io_u 40\n\
                fio;main;do_io;a_long_name_of_a_function;nvme_queue_rq_[k] 5\n\
                fio;main;do_io;nvme_poll_[k] 5\n\
                fio;main;other;nvme_irq_[k];get_ticks 10\n\
                kswapd0;kswapd_[k] 40\n";
    let mut profile = folded::parse(text, Unit::Samples).unwrap();
    let ids = [profile.frame(HOSTILE, biopsy::analyze::profile::Area::Label)];
    profile.add(&ids, 100);
    profile
}

fn caption() -> Caption {
    Caption { place: HOSTILE.into(), ..Caption::new("on-CPU time", "45 samples") }
}

/// The script's results for a page. None: there is no browser.
fn read(test: &str, name: &str, page: &str) -> Option<Value> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = directory.join(name);
    std::fs::write(&file, page).unwrap();
    let profile = directory.join(format!("chromium-{test}"));
    let run = Command::new("chromium")
        .args(["--headless", "--disable-gpu", "--no-first-run", "--window-size=1300,900"])
        // Chromium's sandbox refuses root; the page is our own.
        .arg("--no-sandbox")
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .stderr(Stdio::null())
        .output();
    let output = match run {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped("chromium is not installed");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    std::fs::remove_dir_all(&profile).ok();
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, rest) = text.split_once("data-seen=\"").unwrap_or_else(|| panic!("nothing was seen:\n{text}"));
    let json = rest.split('"').next().unwrap();
    let json = json.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&json).unwrap())
}

/// Checks what must hold for the first graph of every page.
fn check(seen: &Value) {
    assert_eq!(seen["error"], Value::Null, "{seen:#}");
    assert_eq!(seen["pwned"], "undefined", "{seen:#}");
    assert_eq!(seen["pointed"], true, "{seen:#}");
    assert_eq!(
        (&seen["hover"], &seen["left"]),
        (&"do_io (50 samples, 25.00 %)".into(), &"".into()),
        "{seen:#}"
    );
    assert_eq!((&seen["width"], &seen["reset_before"]), (&"25.0000%".into(), &false.into()), "{seen:#}");
    let zoomed = &seen["zoomed"];
    assert_eq!((&zoomed["width"], &zoomed["reset"]), (&"100%".into(), &true.into()), "{seen:#}");
    // other, nvme_irq, get_ticks, kswapd0, kswapd and the hostile one.
    assert_eq!((&zoomed["hidden"], &zoomed["parent"]), (&6.into(), &true.into()), "{seen:#}");
    assert_eq!(zoomed["text"], "a_long_name_o..", "{seen:#}");
    assert!(zoomed["on_screen"].as_f64().unwrap() > 1_000.0, "{seen:#}");
    // 40 + 5 + 5 of the 50 that are shown; then 60 of 200, with 10 more where one of two matches contains the other.
    assert_eq!(seen["searched_zoomed"], "matched 100.00 %", "{seen:#}");
    assert_eq!(seen["unzoomed"]["hidden"], 0, "{seen:#}");
    assert_eq!((&seen["unzoomed"]["width"], &seen["unzoomed"]["reset"]), (&"25%".into(), &false.into()));
    let searched = &seen["searched"];
    assert_eq!(
        (&searched["matched"], &searched["label"]),
        (&"matched 30.00 %".into(), &"Reset search".into())
    );
    let mut hits: Vec<&str> = searched["hits"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    hits.sort_unstable();
    assert_eq!(hits, ["get_io_u", "get_ticks", "nvme_irq", "nvme_poll", "nvme_queue_rq"]);
    assert_eq!(searched["fill"], "rgb(240, 96, 240)", "{seen:#}");
    assert!(searched["others"].as_array().unwrap().iter().all(|hits| *hits == 0), "{seen:#}");
    let reset = &seen["search_reset"];
    assert_eq!(
        (&reset["matched"], &reset["label"], &reset["hits"]),
        (&"".into(), &"Search".into(), &0.into())
    );
    assert_eq!((&seen["no_expression"], &seen["cancelled"]), (&"matched 0.00 %".into(), &"Search".into()));
    assert_eq!((&seen["all"]["hidden"], &seen["all"]["reset"]), (&0.into(), &false.into()), "{seen:#}");
}

#[test]
fn a_file_of_its_own_is_hovered_zoomed_and_searched() {
    let svg = flame::file(&profile(), &caption(), &Options::default()).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    let page = svg.replace("\n</svg>\n", &format!("\n<script><![CDATA[{READER}]]></script></svg>\n"));
    assert_ne!(page, svg);
    let Some(seen) = read("a_file_of_its_own", "flame-reader.svg", &page) else { return };
    check(&seen);
    assert_eq!((&seen["live"], &seen["tabs"]), (&serde_json::json!([true]), &serde_json::json!([])));
}

#[test]
fn pictures_on_one_page_have_tabs_and_do_not_disturb_each_other() {
    let options = Options::default();
    let one = flame::inline(&profile(), &caption(), &options).unwrap();
    let (before, after) = (profile(), profile());
    let side = |profile| DiffSide { profile, events: None, what: None };
    let comparison = compare(side(&before), side(&after), Basis::Share).unwrap();
    let two = flame_diff::inline(&comparison, &caption(), &options).unwrap();
    let tabs = flame::tabs(&[("on-CPU", one), (HOSTILE, two)]);
    let head = "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" \
                content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">";
    let (style, script) = (flame::INLINE_STYLE, flame::INLINE_SCRIPT);
    let page =
        |scripts: &str| format!("{head}<style>{style}</style></head><body>{tabs}{scripts}</body></html>");
    let live = page(&format!("<script>{script}</script><script>{READER}</script>"));
    let Some(seen) = read("pictures_on_one_page", "flame-reader.html", &live) else { return };
    check(&seen);
    assert_eq!(
        (&seen["live"], &seen["tabs"]),
        (&serde_json::json!([true, true]), &serde_json::json!(["on-CPU", HOSTILE]))
    );
    assert_eq!(
        (&seen["visible"], &seen["second"]),
        (&serde_json::json!([true, false]), &serde_json::json!([false, true]))
    );
    assert_eq!(seen["zoomed_second"], serde_json::json!([0, true]));

    // Without biopsy's script all panes are shown, and no control that would have no effect.
    let look = "const panes = Array.from(document.querySelectorAll(\".pane\"));
        const seen = { shown: panes.map((pane) => getComputedStyle(pane).display !== \"none\" && pane.clientHeight > 90),
          controls: getComputedStyle(document.querySelector(\".controls\")).visibility, pwned: typeof window.pwned };
        document.documentElement.setAttribute(\"data-seen\", JSON.stringify(seen));";
    let plain = page(&format!("<script>{look}</script>"));
    let seen = read("pictures_on_one_page", "flame-without-script.html", &plain).unwrap();
    assert_eq!(
        seen,
        serde_json::json!({ "shown": [true, true], "controls": "hidden", "pwned": "undefined" })
    );
}
