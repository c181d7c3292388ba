import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import "./shared/theme.css";
import "./shared/components.css";
import "./shared/dialogs.css";
import "./shared/notices.css";
import "./shared/decision/decision.css";
import "./shared/decision/forms.css";
import "./shared/decision/bar.css";
import "./app/app.css";
import "./inbox/inbox.css";
import "./inbox/request.css";
import "./inbox/context.css";

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);

// Later, so that it delays nothing that the page shows. There is none without HTTPS.
window.addEventListener("load", () => void navigator.serviceWorker?.register("/service-worker.js").catch(() => undefined));
