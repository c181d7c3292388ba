import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import "./shared/theme.css";
import "./shared/components.css";
import "./shared/decision/decision.css";
import "./app/app.css";
import "./inbox/inbox.css";

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
