import type { ReactElement } from "react";
import { PeopleLists } from "./PeopleLists";
import { PersonPage } from "./PersonPage";
import "../history/history.css";
import "./people.css";

/** `/people` lists everyone, `/people/{name}` is one person or agent. */
export default function PeoplePage({ id }: { id?: string }): ReactElement {
  return id ? <PersonPage key={id} name={id} /> : <PeopleLists />;
}
