/** Trust in a run: a dialog to start it, a countdown with a button to stop, and what ran under it. */

import { useState, type ReactElement } from "react";
import { ApiError, api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Dialog } from "../shared/components/Dialog";
import { Age } from "../shared/components/Time";
import { toast } from "../shared/components/Toasts";
import { useNow } from "../shared/format";
import { useOffline } from "../shared/live";
import type { RunDetail, TrustWindow } from "../shared/types";
import { visible } from "../shared/visible";

const RISKS = ["low", "medium"] as const;
const MINUTES = [5, 15, 60];

async function attempt(act: () => Promise<unknown>, done: string, reload: () => void): Promise<void> {
  try {
    await act();
    toast(done, "good");
  } catch (error) {
    toast(error instanceof ApiError ? error.message : String(error), "bad");
  }
  reload();
}

export function Trust({ run, reload }: { run: RunDetail; reload: () => void }): ReactElement | null {
  const [asking, setAsking] = useState(false);
  const offline = useOffline();
  const now = useNow();
  const live = run.windows.find((one) => one.live && Date.parse(one.ends_at) > now);
  const over = run.windows.filter((one) => one !== live && one.calls.length > 0);
  const goesOn = run.status === "running" || run.status === "paused";
  if (!goesOn && over.length === 0) return null;
  return (
    <section aria-label="Trust" className="trust">
      {live ? (
        <LiveWindow window={live} now={now} reload={reload} />
      ) : (
        goesOn && (
          <Button small disabled={offline !== ""} onClick={() => setAsking(true)}>
            Trust this run…
          </Button>
        )
      )}
      {over.map((one) => (
        <p key={one.id} className="muted small">
          {visible(one.by)} trusted this run <Age at={one.created_at} />. Without a person: <Calls window={one} />
        </p>
      ))}
      {asking && <TrustDialog run={run.id} onClose={() => setAsking(false)} reload={reload} />}
    </section>
  );
}

function Calls({ window }: { window: TrustWindow }): ReactElement {
  return <span className="mono">{window.calls.map(visible).join(", ") || "nothing yet"}</span>;
}

function LiveWindow({
  window,
  now,
  reload,
}: {
  window: TrustWindow;
  now: number;
  reload: () => void;
}): ReactElement {
  const left = Math.max(0, Math.ceil((Date.parse(window.ends_at) - now) / 1_000));
  const clock = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
  const stop = () => void attempt(() => api.revoke(window.id), "Stopped: the run asks again", reload);
  return (
    <div className="card trust-live" data-testid="window">
      <div>
        <strong>
          {visible(window.by)} trusts this run up to risk {window.max_risk}
        </strong>
        <div className="muted small">
          Without a person: <Calls window={window} />. Any rejection ends it.
        </div>
      </div>
      <span className="mono" role="timer" aria-label="Time left">
        {clock}
      </span>
      <Button small tone="danger" onClick={stop}>
        Stop
      </Button>
    </div>
  );
}

function TrustDialog({
  run,
  onClose,
  reload,
}: {
  run: string;
  onClose: () => void;
  reload: () => void;
}): ReactElement {
  const [risk, setRisk] = useState<TrustWindow["max_risk"]>("medium");
  const [minutes, setMinutes] = useState(15);
  const start = () => {
    onClose();
    const body = { run, max_risk: risk, ends_in: minutes * 60 };
    void attempt(() => api.trust(body), `The run is trusted for ${minutes} minutes`, reload);
  };
  return (
    <Dialog title="Trust this run?" onClose={onClose}>
      <p>
        It does what it asks for, as far as you could approve it alone, until the time is over or somebody rejects
        something. Calls without a declared risk still ask.
      </p>
      <label className="field">
        <span>Up to risk</span>
        <select value={risk} onChange={(event) => setRisk(event.target.value as TrustWindow["max_risk"])}>
          {RISKS.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <label className="field">
        <span>For</span>
        <select value={minutes} onChange={(event) => setMinutes(Number(event.target.value))}>
          {MINUTES.map((one) => (
            <option key={one} value={one}>
              {one} minutes
            </option>
          ))}
        </select>
      </label>
      <div className="dialog-actions">
        <Button onClick={onClose}>Keep asking</Button>
        <Button tone="primary" onClick={start}>
          Trust run
        </Button>
      </div>
    </Dialog>
  );
}
