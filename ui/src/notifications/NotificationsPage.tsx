/** How requests reach you: your accounts in each channel, this browser, and quiet hours. */

import { useState, type ReactElement } from "react";
import { FormDialog } from "../people/FormDialog";
import { useAction } from "../people/useAction";
import { Tag } from "../shared/components/Badge";
import { Button } from "../shared/components/Button";
import { EmptyState, LoadError, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { toast } from "../shared/components/Toasts";
import { Link } from "../shared/router";
import { useMe } from "../shared/session";
import { useResource } from "../shared/useResource";
import { visible } from "../shared/visible";
import { channels, type Account, type Channel } from "./api";
import { ChannelsPage } from "./ChannelsPage";
import { LinkDialog } from "./LinkDialog";
import { ownAccount, turnOff, turnOn, whyNoPush } from "./push";
import { QuietHours } from "./QuietHours";
import { channelWords, testWords } from "./words";
import "../people/people.css";
import "./notifications.css";

/** `/notifications` is yours; `/notifications/channels` shows admins how the channels of the server do. */
export default function NotificationsPage({ id }: { id?: string }): ReactElement {
  const me = useMe();
  if (id === "channels" && me.role === "admin") return <ChannelsPage />;
  return (
    <main className="page people notifications">
      <div className="page-head">
        <h1>Notifications</h1>
        {me.role === "admin" && (
          <Link to="/notifications/channels" className="button">
            Channels of this server
          </Link>
        )}
      </div>
      <p className="muted">
        How a request that waits for you reaches you. It is in your inbox whatever happens to a message.
      </p>
      {me.auth ? (
        <>
          <OwnChannels />
          <QuietHours />
        </>
      ) : (
        <div className="card">
          <EmptyState icon="bell" title="Nobody signs in at this server">
            <p className="muted">
              Messages reach people who have signed in. Start it without <code>--no-auth</code> to get some.
            </p>
          </EmptyState>
        </div>
      )}
    </main>
  );
}

function OwnChannels(): ReactElement {
  const own = useResource("own channels", channels.list);
  return (
    <>
      {own.error && <LoadError what="your channels" error={own.error} retry={own.reload} />}
      {own.loading && <Skeleton rows={3} />}
      {own.data?.items.length === 0 && (
        <div className="card people-card">
          <EmptyState icon="bell" title="This server has no channels yet">
            <p className="muted">
              Its operator adds them: <code>pip install 'sayso[push]'</code> for push messages, or an option of{" "}
              <code>sayso serve</code>, such as <code>--telegram-token-file</code>.
            </p>
          </EmptyState>
        </div>
      )}
      {own.data?.items.map((channel) => (
        <ChannelCard key={channel.name} channel={channel} onChange={own.reload} />
      ))}
    </>
  );
}

const NONE: Record<Channel["link"], string> = {
  push: "No browser of yours gets push messages.",
  mail: "Your address is not confirmed, so mails have a link only.",
  code: "You have linked no account.",
};

function ChannelCard({ channel, onChange }: { channel: Channel; onChange: () => void }): ReactElement {
  const me = useMe();
  const { name, text } = channelWords(channel.name);
  const { busy, error, run } = useAction();
  const [linking, setLinking] = useState(false);
  const [removing, setRemoving] = useState<Account | null>(null);
  const [tested, setTested] = useState("");
  const push = channel.link === "push";
  const own = push ? ownAccount(me.name) : null;
  const subscribed = channel.accounts.some(({ id }) => id === own);
  const obstacle = push && !subscribed ? whyNoPush() : "";
  const test = () => run(async () => setTested(testWords(await channels.test(channel.name))));
  const subscribe = () =>
    run(async () => {
      setTested("");
      await turnOn(me.name, channel);
      toast("This browser gets push messages now", "good");
      onChange();
    });
  const remove = async (account: Account) => {
    await (account.id === own ? turnOff() : channels.unlink(channel.name, account.id));
    toast(push ? "Push messages stopped" : "Account unlinked", "good");
    setTested("");
    setRemoving(null);
    onChange();
  };
  return (
    <section className="card people-card" aria-label={name}>
      <header>
        <div className="notifications-what">
          <h2>{name}</h2>
          <p className="muted">{text}</p>
        </div>
        <div className="notifications-do">
          {(channel.accounts.length > 0 || channel.link === "mail") && (
            <Button disabled={busy} onClick={() => void test()}>
              Send a test message
            </Button>
          )}
          {push && !subscribed && (
            <Button tone="primary" disabled={busy || obstacle !== ""} onClick={() => void subscribe()}>
              Turn on in this browser
            </Button>
          )}
          {!push && (
            <Button disabled={busy} onClick={() => setLinking(true)}>
              {channel.link === "mail" ? "Confirm your address…" : "Link an account…"}
            </Button>
          )}
        </div>
      </header>
      {obstacle && <p className="notifications-note muted">{obstacle}</p>}
      {error && (
        <p className="notifications-note field-error" role="alert">
          {error}
        </p>
      )}
      <p className="notifications-note" role="status">
        {tested && visible(tested)}
      </p>
      {channel.accounts.length === 0 && <p className="notifications-note muted">{NONE[channel.link]}</p>}
      <ul>
        {channel.accounts.map((account) => (
          <li key={account.id} className="notifications-account" data-testid="account">
            <span className="wrap">
              {visible(account.account)} {account.id === own && <Tag>this browser</Tag>}
              <span className="muted small notifications-since">
                since <Age at={account.linked_at} />
              </span>
            </span>
            <Button small tone="danger" aria-label={`Remove ${account.account}`} onClick={() => setRemoving(account)}>
              Remove
            </Button>
          </li>
        ))}
      </ul>
      {linking && (
        <LinkDialog
          channel={channel}
          onLinked={() => {
            toast("Account linked", "good");
            setLinking(false);
            onChange();
          }}
          onClose={() => setLinking(false)}
        />
      )}
      {removing && (
        <FormDialog
          title={push ? "Stop push messages?" : "Unlink this account?"}
          verb={push ? "Stop messages" : "Unlink account"}
          danger
          keep="Keep"
          send={() => remove(removing)}
          onClose={() => setRemoving(null)}
        >
          <p className="wrap">
            <strong>{visible(removing.account)}</strong> gets no messages any more
            {push ? "." : ", and decides nothing, also not from earlier ones."} You can add it again.
          </p>
        </FormDialog>
      )}
    </section>
  );
}
