import type { ReactElement } from "react";
import { Tabs } from "../shared/components/Tabs";
import { useQuery } from "../shared/router";
import { Decisions } from "./Decisions";
import { Events } from "./Events";
import { AuditCheck } from "./AuditCheck";
import "./history.css";

export default function HistoryPage(): ReactElement {
  const [query, setQuery] = useQuery();
  const tab = query.get("tab") === "events" ? "events" : "decisions";
  return (
    <main className="page history">
      <div className="page-head">
        <h1>History</h1>
      </div>
      <AuditCheck />
      <Tabs
        label="History"
        tabs={[
          { key: "decisions", label: "Decisions" },
          { key: "events", label: "Events" },
        ]}
        current={tab}
        onChange={(key) => setQuery({ tab: key === "events" ? key : null })}
      >
        {tab === "events" ? <Events /> : <Decisions />}
      </Tabs>
    </main>
  );
}
