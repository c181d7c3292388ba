import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { thirdPartyLicenses } from "./third-party.js";

// No hashes in file names: the build is committed, and `make pages` compares it with a fresh one.
export default defineConfig({
  plugins: [react(), thirdPartyLicenses()],
  build: {
    outDir: "../src/sayso/server/static",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: "assets/app.js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: (asset) =>
          asset.names.some((name) => name.endsWith(".css")) ? "assets/app.css" : "assets/[name][extname]",
        manualChunks: (id) => {
          if (/node_modules\/(react|react-dom|scheduler)\//.test(id)) return "react";
          // The form library is loaded only to edit arguments or to answer a question with a schema.
          if (/SchemaForm|node_modules\/(@rjsf|markdown-to-jsx|lodash)/.test(id)) return "forms";
          if (id.includes("/src/shared/")) return "shared";
          return undefined;
        },
      },
    },
  },
  server: {
    fs: { allow: [".."] }, // a test reads a page of the documentation
    proxy: {
      "/api": "http://127.0.0.1:8321",
      "/demo": "http://127.0.0.1:8321",
    },
  },
  test: { environment: "node", include: ["src/**/*.test.{ts,tsx}"] },
});
