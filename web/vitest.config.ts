import { defineConfig } from "vitest/config";

/** A page in happy-dom takes a second to set up: tests of components (`*.test.tsx`) have one, others ask: `// @vitest-environment happy-dom`. */
export default defineConfig({
  test: {
    testTimeout: 30_000, // on a machine that does other things too
    projects: [
      { extends: true, test: { name: "logic", environment: "node", include: ["src/**/*.test.ts"] } },
      { extends: true, test: { name: "page", environment: "happy-dom", include: ["src/**/*.test.tsx"] } },
    ],
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
