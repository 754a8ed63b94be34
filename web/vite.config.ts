import { defineConfig, type Plugin } from "vite";

/** `linnet board --web --no-open` beside `npm run dev`. */
const SERVER = "http://127.0.0.1:6464";

/** What of uPlot's text is written otherwise, so that the bundler can tell what no chart here uses. */
const LEAN_PLOT: readonly (readonly [RegExp, string])[] = [
  // What hangs on the one function that it exports: ways to draw series, joined tables, dates, synchronised cursors.
  [/^\s*\(?(?:paths\.\w+|uPlot\.(?!pxRatio)\w+)\s*=(?! \{).*;$/gm, ""],
  [/let paths = uPlot\.paths = \{[^}]*\};/, ""],
  [/^const (linearPath|pointsPath) = .*;$/gm, "const $1 = null;"],
  // Parts that are never shown: charts have cursor, selection and legend of their own, and times of their own on axes.
  [/^(\s*)(?:const|let) (showLegend|showCursor|cursorFocus|isTime) *= .*;$/gm, "$1const $2 = false;"],
  [/\b(?:select|legend)\.show\b/g, "false"],
  [/^const \[ timeIncrs\w+, .*genTimeStuffs.*;$/gm, ""],
  [/^\s*const _time(?:AxisSplits|AxisVals|SeriesVal) *= .*;$/gm, ""],
  // Lines are drawn by charts themselves.
  [/^\s*series: drawSeries,$/m, "series: () => {},"],
  // Methods and events that nobody calls.
  [/^\s*self\.(?:\w+Series|\w+Band|setSelect|setLegend|valToIdx|posToIdx|posToVal|pub) = .*;$/gm, ""],
  [/^(\s*)self\.(setCursor|redraw) = \(/gm, "$1const unused_$2 = ("],
  [/^\s*events\.mouse\w+ = .*;$|^\s*events\.dblclick = .*;$/gm, ""],
  [/^(\s*)events\["setSeries"\] = \(/m, "$1const unused_event = ("],
  [/^\s*(?:sync\.(?:un)?sub\(self\)|syncRect\(true\)|on\((?:resize|scroll), win, invalidateRects.*\));$/gm, ""],
];

/** uPlot without what no chart here uses. Where uPlot is written otherwise that stays, and the page is larger. */
const leanPlot: Plugin = {
  name: "lean-uplot",
  transform(code, id) {
    if (!id.includes("/uplot/dist/uPlot.esm.js")) return null;
    return { code: LEAN_PLOT.reduce((lean, [text, instead]) => lean.replace(text, instead), code), map: null };
  },
};

/** `early.ts` as a script of its own, which runs before the styles and that of the page are there. */
const earlyScript: Plugin = {
  name: "early-script",
  transformIndexHtml: {
    order: "post",
    handler(_html, { bundle }) {
      const early = Object.values(bundle ?? {}).find((file) => file.type === "chunk" && file.name === "early");
      if (!early) return [];
      return [
        {
          tag: "script",
          attrs: { src: `./${early.fileName}` },
          injectTo: "head-prepend",
        },
      ];
    },
  },
};

export default defineConfig({
  plugins: [leanPlot, earlyScript],
  base: "./", // the page also works below a path, and as a file
  build: {
    outDir: "../src/linnet/board/web/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false, // pages that come later need nothing but themselves
    assetsInlineLimit: 0, // no data: addresses, which the Content-Security-Policy refuses
    cssCodeSplit: false,
    rolldownOptions: { input: { index: "index.html", early: "src/early.ts" } },
    reportCompressedSize: false,
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": { target: SERVER, changeOrigin: true } } },
});
