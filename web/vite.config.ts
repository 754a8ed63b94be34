import { defineConfig, type Plugin } from "vite";

/** `linnet board --web --no-open` beside `npm run dev`. */
const SERVER = "http://127.0.0.1:6464";

/**
 * uPlot without what no chart here uses: ways to draw series (charts draw their lines themselves), joined tables, dates.
 * They hang on the one function that it exports, so the bundler cannot tell. Where uPlot is written otherwise they stay,
 * and the page is larger.
 */
const leanPlot: Plugin = {
  name: "lean-uplot",
  transform(code, id) {
    if (!id.includes("/uplot/dist/uPlot.esm.js")) return null;
    const unused = /^\s*\(?(?:paths\.\w+|uPlot\.(?:join|rangeAsinh|orient|addGap|clipGaps|fmtDate|tzDate))\s*=.*;$/gm;
    const builders = /^const (linearPath|pointsPath) = .*;$/gm;
    const lean = code.replace(unused, "").replace(builders, "const $1 = null;");
    return { code: lean.replace(/let paths = uPlot\.paths = \{[^}]*\};/, ""), map: null };
  },
};

/** `early.ts` as a script of its own before that of the page. */
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
          attrs: { type: "module", async: true, fetchpriority: "high", src: `./${early.fileName}` },
          injectTo: "head",
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
