import type { ReactElement } from "react";
import { RunDetail } from "./RunDetail";
import { RunList } from "./RunList";
import "../history/history.css";
import "./runs.css";

/** `/runs` is the list, `/runs/{id}` one run. */
export default function RunsPage({ id }: { id?: string }): ReactElement {
  return id ? <RunDetail key={id} id={id} /> : <RunList />;
}
