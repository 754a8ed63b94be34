import { defineConfig, mergeConfig } from "vite";
import board from "./vite.config";

/** The page as a report: one script and one style, which web/build.py puts into one HTML file. */
export default mergeConfig(
  board,
  defineConfig({
    build: {
      outDir: "../src/linnet/board/web/static/report",
      rolldownOptions: {
        input: "src/report.tsx",
        transform: { define: { "import.meta": "{}" } }, // nothing is fetched by an address: one script has all pages
        output: { format: "iife", entryFileNames: "report.js", assetFileNames: "report[extname]" },
      },
    },
  }),
);
