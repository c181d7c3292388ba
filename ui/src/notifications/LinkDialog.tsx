import { useEffect, useState, type ReactElement } from "react";
import { FormDialog } from "../people/FormDialog";
import { Button } from "../shared/components/Button";
import { CopyButton } from "../shared/components/CopyButton";
import { Dialog } from "../shared/components/Dialog";
import { LoadError, Skeleton } from "../shared/components/States";
import { Countdown } from "../shared/components/Time";
import { useResource } from "../shared/useResource";
import { channels, type Channel, type LinkCode } from "./api";
import { channelWords } from "./words";

interface Props {
  channel: Channel;
  onLinked: () => void;
  onClose: () => void;
}

/** Gets a code that links an account. It waits until the code has been sent to the bot, or asks for it. */
export function LinkDialog({ channel, onLinked, onClose }: Props): ReactElement {
  const code = useResource(`code ${channel.name}`, () => channels.link(channel.name));
  const title = channel.link === "mail" ? "Confirm your address" : `Link an account in ${channelWords(channel.name).name}`;
  if (!code.data) {
    return (
      <Dialog title={title} onClose={onClose}>
        {code.error ? <LoadError what="a code" error={code.error} retry={code.reload} /> : <Skeleton rows={2} />}
      </Dialog>
    );
  }
  return channel.link === "mail" ? (
    <MailForm title={title} channel={channel} ends={code.data.ends_at} onLinked={onLinked} onClose={onClose} />
  ) : (
    <BotCode title={title} channel={channel} code={code.data} onLinked={onLinked} onClose={onClose} />
  );
}

/** Milliseconds between looks whether the bot has got the code. */
const LOOK = 1_500;

function BotCode({ title, channel, code, onLinked, onClose }: Props & { title: string; code: LinkCode }): ReactElement {
  useEffect(() => {
    const before = new Set(channel.accounts.map(({ id }) => id));
    const timer = setInterval(() => {
      channels.list().then(
        ({ items }) => {
          const now = items.find(({ name }) => name === channel.name);
          if (!now?.accounts.some(({ id }) => !before.has(id))) return;
          clearInterval(timer);
          onLinked();
        },
        () => undefined, // the next look may get an answer
      );
    }, LOOK);
    return () => clearInterval(timer);
  }, []);
  const { name } = channelWords(channel.name);
  return (
    <Dialog title={title} onClose={onClose}>
      <p>Send this line to the bot, from the account that should get your messages. It works once.</p>
      <div className="people-secret">
        <code data-testid="code">{code.send}</code>
        <CopyButton text={code.send ?? ""} label="Copy" />
      </div>
      {code.open && (
        <p>
          <a className="button button-primary" href={code.open} target="_blank" rel="noreferrer">
            Open the bot in {name}
          </a>
        </p>
      )}
      <p className="muted">
        Waiting for your message. <Countdown until={code.ends_at} always />
      </p>
      <div className="dialog-actions">
        <Button onClick={onClose}>Cancel</Button>
      </div>
    </Dialog>
  );
}

function MailForm({ title, channel, ends, onLinked, onClose }: Props & { title: string; ends: string }): ReactElement {
  const [code, setCode] = useState("");
  return (
    <FormDialog
      title={title}
      verb="Confirm"
      ready={code.trim() !== ""}
      send={async () => {
        await channels.confirm(channel.name, code.trim());
        onLinked();
      }}
      onClose={onClose}
    >
      <p>
        A code is on its way to your address. <Countdown until={ends} always />
      </p>
      <label className="field">
        <span className="field-label">Code</span>
        <input data-autofocus value={code} autoComplete="one-time-code" onChange={(event) => setCode(event.target.value)} />
      </label>
    </FormDialog>
  );
}
