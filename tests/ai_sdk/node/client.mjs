// One tab: the real Chat of @ai-sdk/react on the real transport, in either version.
import assert from 'node:assert/strict';

const versions = {
  6: async () => [await import('ai6'), await import('ai6-react')],
  7: async () => [await import('ai'), await import('@ai-sdk/react')],
};

export async function load(version, origin) {
  const [ai, react] = await versions[version]();

  class Tab {
    constructor(lab, { id = 'chat', user = 'ana', recipe = false, messages = [], auto } = {}) {
      this.lab = `${origin}/${lab}`;
      this.user = user;
      this.posts = [];
      this.errors = [];
      const api = `${this.lab}/${recipe ? 'chat-recipe' : 'chat'}`;
      this.api = api;
      const headers = { 'x-user': user };
      const fetchAndCount = (url, init) => {
        if (init?.method === 'POST') this.posts.push(JSON.parse(init.body));
        return fetch(url, init);
      };
      this.chat = new react.Chat({
        id,
        messages,
        transport: new ai.DefaultChatTransport({ api, headers, fetch: fetchAndCount }),
        onError: error => this.errors.push(error.message),
        // The two that the client comes with, unless a scenario wants one of them.
        sendAutomaticallyWhen: options =>
          (auto !== 'tool-calls' && ai.lastAssistantMessageIsCompleteWithApprovalResponses(options)) ||
          (auto !== 'approvals' &&
            (auto || !recipe) &&
            ai.lastAssistantMessageIsCompleteWithToolCalls(options)),
      });
    }

    say(text) {
      return this.chat.sendMessage({ text });
    }

    get last() {
      return this.chat.messages.at(-1);
    }
    get tools() {
      return this.last.parts.filter(part => 'toolCallId' in part);
    }
    get states() {
      return this.tools.map(part => part.state);
    }
    get text() {
      return this.last.parts.map(part => (part.type === 'text' ? part.text : '')).join('');
    }
    card(part) {
      return this.last.parts.find(p => p.type === 'data-request' && p.id === part.toolCallId).data;
    }

    // Answer the open cards; the client posts by itself when all are answered.
    async approve(part, more = {}) {
      await this.chat.addToolApprovalResponse({ id: part.approval.id, approved: true, ...more });
    }
    async deny(part, reason) {
      await this.chat.addToolApprovalResponse({ id: part.approval.id, approved: false, reason });
    }
    async output(part, output) {
      const tool = part.type.slice('tool-'.length);
      await this.chat.addToolOutput({ tool, toolCallId: part.toolCallId, output });
    }

    // While it streams.
    async sees(text) {
      for (const end = Date.now() + 30000; Date.now() < end; ) {
        assert.deepEqual(this.errors, []);
        if (this.last?.role === 'assistant' && this.text.includes(text)) return;
        await new Promise(resolve => setTimeout(resolve, 5));
      }
      assert.fail(`not seen within 30 s: ${text}`);
    }

    async until(condition) {
      for (const end = Date.now() + 30000; Date.now() < end; ) {
        assert.deepEqual(this.errors, []);
        if (this.chat.status === 'ready' && condition()) return this.settled();
        await new Promise(resolve => setTimeout(resolve, 5));
      }
      assert.fail(`not within 30 s: ${condition}\n${JSON.stringify(this.chat.messages, null, 1)}`);
    }

    // The client posts again as soon as it is idle, if it thinks that it has to.
    async settled() {
      const posts = this.posts.length;
      await new Promise(resolve => setTimeout(resolve, 30));
      assert.equal(this.posts.length, posts, 'the client posts again and again');
      assert.equal(this.chat.status, 'ready');
    }

    final(text = 'Final answer') {
      return this.until(() => this.last.role === 'assistant' && this.text.includes(text));
    }

    async get(path) {
      const response = await fetch(path, { headers: { 'x-user': this.user } });
      return response.status === 204 ? null : response.json();
    }
    effects() {
      return this.get(`${this.lab}/effects`);
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

    // A page that was just opened: what the server has, in a new client.
    async reloaded(options = {}) {
      const messages = await this.stored();
      return new Tab(this.lab.slice(origin.length + 1), { user: this.user, messages, ...options });
    }
    async stored() {
      const messages = await this.get(`${this.api}/${this.chat.id}/messages`);
      if (messages.length) await ai.validateUIMessages({ messages });
      return messages;
    }
    // What is shown is what is stored, and both are valid.
    async converged() {
      await ai.validateUIMessages({ messages: this.chat.messages });
      const stored = await this.stored();
      assert.deepEqual(essence(this.chat.messages), essence(stored));
    }
  }
  return Tab;
}

// What matters of messages: the client adds ids, providers and empty keys of its own.
export function essence(messages) {
  const kept = ({ type, text, toolCallId, state, input, output, errorText }) =>
    JSON.parse(JSON.stringify({ type, text, toolCallId, state, input, output, errorText }));
  return messages.map(({ id, role, parts }) => ({
    ...(role === 'assistant' ? { id } : {}),
    role,
    parts: withoutEmptyStep(parts.filter(part => !part.type.startsWith('data-'))).map(part => {
      const { state, ...rest } = kept(part);
      return part.type === 'text' ? rest : { ...rest, ...(state ? { state } : {}) };
    }),
  }));
}

// A run that ended with calls has a step without words after them.
const withoutEmptyStep = parts => {
  const silent = parts.at(-1)?.type === 'text' && parts.at(-1).text === '';
  return silent ? parts.slice(0, -2) : parts;
};
