// One tab: the real HttpAgent of @ag-ui/client.
import assert from 'node:assert/strict';
import { HttpAgent, buildResumeArray } from '@ag-ui/client';

export const load = origin =>
  class Tab {
    constructor(lab, { thread = 'thread', user = 'ana', messages = [] } = {}) {
      this.lab = `${origin}/${lab}`;
      this.user = user;
      this.errors = [];
      this.events = [];
      this.agent = new HttpAgent({
        url: `${this.lab}/ag-ui`,
        headers: { 'x-user': user },
        threadId: thread,
        initialMessages: messages,
      });
      this.agent.subscribe({
        onEvent: ({ event }) => void this.events.push(event),
        onRunErrorEvent: ({ event }) => void this.errors.push(event),
        onRunFinishedEvent: ({ outcome }) => void (this.outcome = outcome),
      });
    }

    async run(parameters) {
      this.events = [];
      this.errors = [];
      this.outcome = undefined;
      await this.agent.runAgent(parameters);
    }
    say(content, parameters) {
      this.agent.addMessage({ id: crypto.randomUUID(), role: 'user', content });
      return this.run(parameters);
    }
    // The client's own helper, which insists on an answer for each open interrupt.
    resume(responses) {
      return this.run({ resume: buildResumeArray(this.interrupts, responses) });
    }
    resolve(payload) {
      assert.equal(this.interrupts.length, 1);
      return this.resume({ [this.interrupts[0].id]: { status: 'resolved', payload } });
    }

    get interrupts() {
      return this.agent.pendingInterrupts;
    }
    get messages() {
      return this.agent.messages;
    }
    get calls() {
      const calls = this.messages.flatMap(message => message.toolCalls ?? []);
      return calls.map(({ function: f }) => [f.name, JSON.parse(f.arguments)]);
    }
    get results() {
      return this.messages.filter(m => m.role === 'tool').map(m => m.content);
    }
    get text() {
      return this.messages.at(-1).content;
    }

    async effects() {
      return (await fetch(`${this.lab}/effects`)).json();
    }
    async ran(...expected) {
      assert.deepEqual((await this.effects()).map(row => [row.tool, row.args]), expected);
    }
    // Let the model of a lab go on.
    async go() {
      assert.equal((await fetch(`${this.lab}/go`, { method: 'POST' })).status, 200);
    }
    // Another person, somewhere else.
    async elsewhere(decision, user = 'ben') {
      const headers = { 'x-user': user, 'content-type': 'application/json' };
      const init = { method: 'POST', headers, body: JSON.stringify(decision) };
      const response = await fetch(`${this.lab}/decide`, init);
      assert.equal(response.status, 200, await response.text());
    }

    // A page that was just opened: an empty client, and a run without input.
    async reloaded() {
      const tab = new Tab(this.lab.slice(origin.length + 1), { user: this.user });
      await tab.run();
      return tab;
    }
    // What is shown is what a fresh page shows, in the same order.
    async converged() {
      const fresh = await this.reloaded();
      assert.deepEqual(essence(this.messages), essence(fresh.messages));
      assert.deepEqual(this.interrupts, fresh.interrupts);
    }
  };

// What matters of messages: user messages have the client's ids, and results come as they are made.
const essence = messages =>
  inOrder(messages).map(({ id, role, content, toolCalls, toolCallId, metadata }) => ({
    ...(role === 'user' ? {} : { id }),
    ...JSON.parse(JSON.stringify({ role, content: content || undefined, toolCalls })),
    ...JSON.parse(JSON.stringify({ toolCallId, metadata })),
  }));

const inOrder = messages => {
  const results = messages.filter(m => m.role === 'tool').sort((a, b) => (a.id < b.id ? -1 : 1));
  return [...messages.filter(m => m.role !== 'tool'), ...results];
};
