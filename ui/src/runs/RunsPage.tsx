import type { ReactElement } from "react";
import { RunDetail } from "./RunDetail";
import { RunList } from "./RunList";
import "../history/history.css";
import "./runs.css";

/** `/runs` lists what agents did, `/runs/{id}` tells one of them. */
export default function RunsPage({ id }: { id?: string }): ReactElement {
  return id ? <RunDetail key={id} id={id} /> : <RunList />;
}
