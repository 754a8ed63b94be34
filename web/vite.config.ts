import { defineConfig } from "vite";

/** `linnet board --web --no-open` beside `npm run dev`. */
const SERVER = "http://127.0.0.1:6464";

export default defineConfig({
  base: "./", // the page also works below a path, and as a file
  build: {
    outDir: "../src/linnet/board/web/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false, // pages that come later need nothing but themselves
    assetsInlineLimit: 0, // no data: addresses, which the Content-Security-Policy refuses
    cssCodeSplit: false,
    reportCompressedSize: false,
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": { target: SERVER, changeOrigin: true } } },
});
