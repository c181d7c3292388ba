// What people do in a chat, each in a lab of its own: an agent, a store and a log of effects.
import assert from 'node:assert/strict';

const MODES = ['approvals', 'tool-calls', 'both'];
const OSLO = ['getWeatherInformation', { city: 'Oslo' }];

export default Tab => ({
  async approve() {
    const tab = new Tab('demo-approve');
    await tab.say('weather in Oslo');
    assert.deepEqual(tab.states, ['approval-requested']);
    await tab.ran();
    await tab.approve(tab.tools[0]);
    await tab.final('The weather in Oslo is cloudy.');
    assert.deepEqual(tab.states, ['output-available']);
    assert.equal(tab.chat.messages.length, 2);
    assert.equal(tab.posts.length, 2);
    await tab.ran(OSLO);
    await tab.converged();
  },

  async reject_with_reason() {
    const tab = new Tab('demo-reject');
    await tab.say('weather in Oslo');
    await tab.deny(tab.tools[0], 'not today');
    await tab.final('not today');
    assert.deepEqual(tab.states, ['output-denied']);
    assert.equal(tab.card(tab.tools[0]).decision.by, 'ana');
    await tab.ran();
    await tab.converged();
  },

  async edit() {
    const tab = new Tab('demo-edit');
    await tab.say('weather in Oslo');
    const [part] = tab.tools;
    const body = { edits: { [part.approval.id]: { city: 'Rome' } } };
    await tab.approve(part, { options: { body } });
    await tab.final('Rome');
    assert.deepEqual(tab.tools[0].input, { city: 'Rome' });
    assert.equal(tab.tools.length, 1);
    await tab.ran(['getWeatherInformation', { city: 'Rome' }]);
    await tab.converged();
  },

  async edit_that_does_not_fit() {
    const tab = new Tab('demo-misfit');
    await tab.say('weather in Oslo');
    const body = { edits: { [tab.tools[0].approval.id]: { city: 7 } } };
    await tab.approve(tab.tools[0], { options: { body } });
    await tab.until(() => tab.states[0] === 'approval-requested');
    assert.match(tab.card(tab.tools[0]).problem, /city/);
    await tab.ran();
    await tab.approve(tab.tools[0]);
    await tab.final('Oslo');
    await tab.ran(OSLO);
    await tab.converged();
  },

  async two_calls_in_turn() {
    const tab = new Tab('demo-two');
    await tab.say('do two things in Oslo');
    await tab.approve(tab.tools[0]);
    await tab.settled();
    assert.equal(tab.posts.length, 1, 'the client waits for the second answer');
    await tab.chat.sendMessage(); // and a page need not wait
    assert.deepEqual(tab.states, ['output-available', 'approval-requested']);
    await tab.ran(OSLO);
    await tab.deny(tab.tools[1], 'keep it');
    await tab.final('keep it');
    assert.deepEqual(tab.states, ['output-available', 'output-denied']);
    await tab.ran(OSLO);
    await tab.converged();
  },

  async two_calls_together() {
    const tab = new Tab('demo-both');
    await tab.say('do two things in Oslo');
    await tab.approve(tab.tools[0]);
    await tab.approve(tab.tools[1]);
    await tab.final();
    assert.equal((await tab.effects()).length, 2);
    assert.equal(tab.posts.length, 2);
    await tab.converged();
  },

  async question_with_options() {
    const tab = new Tab('demo-question');
    await tab.say('ask me a question');
    const [part] = tab.tools;
    assert.equal(part.state, 'input-available');
    await tab.output(part, part.input.options[1].value);
    await tab.final("you chose 'oauth'");
    await tab.converged();
  },

  async question_in_own_words() {
    const tab = new Tab('demo-words');
    await tab.say('ask me a question');
    await tab.output(tab.tools[0], { answer: 'with a key' });
    await tab.final("you chose 'with a key'");
    await tab.converged();
  },

  async questions_until_the_order_is_whole() {
    const tab = new Tab('demo-pizza');
    await tab.say('a pizza, please');
    const open = () => tab.tools.find(part => part.state === 'input-available');
    await tab.output(open(), 'large');
    await tab.until(() => open()?.input.allow_multiple);
    await tab.output(open(), ['cheese', 'olives']);
    await tab.until(() => open() && !open().input.allow_multiple);
    await tab.output(open(), 'well done');
    await tab.final('"toppings": ["cheese", "olives"], "special_instructions": "well done"');
    assert.equal(tab.chat.messages.length, 2);
    await tab.converged();
  },

  async answer_that_does_not_fit() {
    const tab = new Tab('demo-unfit');
    await tab.say('ask me a question');
    await tab.output(tab.tools[0], 7);
    await tab.until(() => tab.states[0] === 'input-available');
    assert.match(tab.card(tab.tools[0]).problem, /answer with/);
    await tab.output(tab.tools[0], 'oauth');
    await tab.final("you chose 'oauth'");
  },

  async reload_while_it_waits() {
    const before = new Tab('demo-reload');
    await before.say('weather in Oslo');
    const tab = await before.reloaded();
    assert.deepEqual(tab.states, ['approval-requested']);
    await tab.chat.resumeStream();
    assert.deepEqual(tab.states, ['approval-requested']);
    assert.equal(tab.chat.messages.length, 2);
    await tab.approve(tab.tools[0]);
    await tab.final('Oslo');
    await tab.ran(OSLO);
    await tab.converged();
    const after = await tab.reloaded();
    await after.chat.resumeStream();
    await after.converged();
    assert.deepEqual(after.errors, []);
  },

  async reload_while_it_speaks() {
    const before = new Tab('held-speaks');
    await before.say('weather, please');
    await before.approve(before.tools[0]);
    await before.sees('Final answer:');
    const tab = await before.reloaded();
    assert.deepEqual(tab.states, ['output-available']);
    const followed = tab.chat.resumeStream();
    await tab.sees('Final answer:');
    await before.chat.stop(); // the first page goes away, and the answer does not mind
    await tab.go();
    await followed;
    await tab.final('The weather in New York is');
    assert.equal((await tab.effects()).length, 1);
    await tab.converged();
  },

  async reload_before_anything_is_stored() {
    const before = new Tab('held-opening');
    const said = before.say('hello');
    await before.sees('I only');
    const tab = await before.reloaded();
    assert.equal(tab.chat.messages.length, 1, 'only the words: the answer is not stored yet');
    const followed = tab.chat.resumeStream();
    await tab.sees('I only');
    await tab.go();
    await Promise.all([said, followed]);
    assert.equal(tab.text, before.text);
    await tab.converged();
    await before.converged();
  },

  async stale_tab_with_the_click_in_it() {
    const tab = new Tab('demo-stale');
    await tab.say('weather in Oslo');
    const other = await tab.reloaded();
    await tab.approve(tab.tools[0]);
    await tab.final('Oslo');
    await other.approve(other.tools[0]);
    await other.final('Oslo');
    await other.converged();
    await tab.ran(OSLO);
  },

  async decided_elsewhere() {
    const tab = new Tab('demo-elsewhere');
    await tab.say('weather in Oslo');
    await tab.elsewhere({ type: 'edit', args: { city: 'Rome' } });
    await tab.chat.resumeStream();
    await tab.final('Rome');
    assert.deepEqual(tab.tools[0].input, { city: 'Rome' });
    assert.equal(tab.card(tab.tools[0]).decision.by, 'ben');
    await tab.ran(['getWeatherInformation', { city: 'Rome' }]);
    await tab.converged();
  },

  async denied_elsewhere_and_clicked_here() {
    const tab = new Tab('demo-denied');
    await tab.say('weather in Oslo');
    await tab.elsewhere({ type: 'reject', message: 'ben says no' });
    await tab.approve(tab.tools[0]);
    await tab.final('ben says no');
    assert.deepEqual(tab.states, ['output-denied']);
    await tab.ran();
  },

  async new_words_over_an_open_card() {
    const tab = new Tab('demo-new');
    await tab.say('weather in Oslo');
    const card = tab.tools[0];
    await tab.say('what is the time in Oslo?');
    await tab.final('It is 10am in Oslo.');
    assert.equal(tab.chat.messages.length, 4);
    await tab.ran(['getLocalTime', { location: 'Oslo' }]);
    // The old card can still be clicked. It says what became of it, and nothing runs.
    await tab.approve(card);
    await tab.chat.sendMessage();
    await tab.settled();
    await tab.ran(['getLocalTime', { location: 'Oslo' }]);
    const [, old] = tab.chat.messages;
    assert.deepEqual(old.parts.filter(p => 'toolCallId' in p).map(p => p.state), ['output-denied']);
    assert.equal(tab.chat.messages.length, 4);
  },

  async recipe_yes() {
    const tab = new Tab('demo-yes', { recipe: true });
    await tab.say('weather in Oslo');
    assert.deepEqual(tab.states, ['input-available']);
    await tab.output(tab.tools[0], 'Yes, confirmed.');
    tab.chat.sendMessage();
    await tab.final('The weather in Oslo is cloudy.');
    assert.equal(tab.tools[0].output, 'The weather in Oslo is cloudy.');
    await tab.ran(OSLO);
    await tab.converged();
  },

  async recipe_no() {
    const tab = new Tab('demo-no', { recipe: true });
    await tab.say('weather in Oslo');
    await tab.output(tab.tools[0], 'No, denied.');
    tab.chat.sendMessage();
    await tab.final('A person rejected this call');
    assert.equal(tab.tools[0].output, 'Error: User denied access to tool execution');
    await tab.ran();
    await tab.converged();
  },

  async recipe_two_in_turn() {
    const tab = new Tab('demo-recipe-two', { recipe: true });
    await tab.say('do two things in Oslo');
    await tab.output(tab.tools[0], 'Yes, confirmed.');
    await tab.chat.sendMessage();
    assert.deepEqual(tab.states, ['output-available', 'input-available']);
    await tab.output(tab.tools[1], 'No, denied.');
    await tab.chat.sendMessage();
    await tab.final();
    await tab.ran(OSLO);
    await tab.converged();
  },

  async double_click() {
    const tab = new Tab('demo-double');
    await tab.say('weather in Oslo');
    const [part] = tab.tools;
    await Promise.all([tab.approve(part), tab.approve(part), tab.deny(part, 'oh no')]);
    await tab.final('Oslo');
    assert.equal(tab.posts.length, 2);
    await tab.ran(OSLO);
    await tab.converged();
  },

  async two_tabs_at_once() {
    const one = new Tab('demo-tabs');
    await one.say('weather in Oslo');
    const two = await one.reloaded();
    await Promise.all([one.approve(one.tools[0]), two.approve(two.tools[0])]);
    await Promise.all([one.final('Oslo'), two.final('Oslo')]);
    await one.ran(OSLO);
    await one.converged();
    await two.converged();
  },

  async stale_revision() {
    const tab = new Tab('quorum-stale');
    await tab.say('go');
    const [old] = tab.tools;
    await tab.elsewhere({ type: 'edit', args: { target: 'the other one' } });
    await tab.approve(old);
    await tab.until(() => tab.states[0] === 'approval-requested');
    assert.match(tab.card(tab.tools[0]).problem, /look at it again/);
    assert.deepEqual(tab.tools[0].input, { target: 'the other one' });
    assert.notEqual(tab.tools[0].approval.id, old.approval.id);
    await tab.ran();
    await tab.approve(tab.tools[0]);
    await tab.final('Done.');
    await tab.ran(['fire', { target: 'the other one' }]);
    assert.deepEqual(tab.tools[0].input, { target: 'the other one' });
  },

  async regenerate() {
    const tab = new Tab('demo-again');
    await tab.say('weather in Oslo');
    await tab.approve(tab.tools[0]);
    await tab.final('Oslo');
    await tab.chat.regenerate();
    await tab.until(() => tab.states[0] === 'approval-requested');
    await tab.ran(OSLO);
    await tab.chat.regenerate(); // while it waits: the same card again
    await tab.until(() => tab.states[0] === 'approval-requested');
    assert.equal(tab.chat.messages.length, 2);
    await tab.ran(OSLO);
  },

  // The client posts by itself when the last step looks complete, and must not do so for ever.
  async automatic_after_a_stopped_question() {
    for (const auto of MODES) {
      const tab = new Tab(`demo-auto-stop-${auto}`, { auto });
      await tab.say('ask me a question');
      const [part] = tab.tools;
      const tool = part.type.slice('tool-'.length);
      const body = { stop: [part.toolCallId] };
      const answer = { tool, toolCallId: part.toolCallId, state: 'output-error', errorText: 'no' };
      await tab.chat.addToolOutput({ ...answer, options: { body } });
      if (auto === 'approvals') await tab.chat.sendMessage(undefined, { body });
      await tab.until(() => tab.posts.length === 2 && tab.states[0] === 'output-error');
      await tab.converged();
    }
  },

  async automatic_after_a_stopped_call() {
    for (const auto of MODES) {
      const tab = new Tab(`demo-auto-deny-${auto}`, { auto });
      await tab.say('weather in Oslo');
      const [part] = tab.tools;
      const options = { body: { stop: [part.approval.id] } };
      const answer = { id: part.approval.id, approved: false, options };
      await tab.chat.addToolApprovalResponse(answer);
      if (auto === 'tool-calls') await tab.chat.sendMessage(undefined, options);
      await tab.until(() => tab.posts.length === 2 && tab.states[0] === 'output-denied');
      await tab.ran();
      await tab.converged();
    }
  },

  async automatic_after_a_question_was_called_off() {
    for (const auto of MODES) {
      const tab = new Tab(`demo-auto-off-${auto}`, { auto });
      await tab.say('ask me a question');
      await tab.elsewhere({ type: 'cancel', run: true });
      await tab.output(tab.tools[0], 'oauth');
      if (auto === 'approvals') await tab.chat.sendMessage();
      await tab.until(() => tab.posts.length === 2 && tab.states[0] === 'output-error');
      await tab.converged();
    }
  },

  async automatic_with_an_unknown_call() {
    for (const auto of MODES) {
      const part = { type: 'tool-rm', toolCallId: 'x', state: 'input-available', input: {} };
      const messages = [
        { id: 'u', role: 'user', parts: [{ type: 'text', text: 'hello' }] },
        { id: 'a', role: 'assistant', parts: [{ type: 'step-start' }, part] },
      ];
      const tab = new Tab(`demo-auto-unknown-${auto}`, { auto, messages });
      await tab.output(tab.tools[0], 'done');
      if (auto === 'approvals') await tab.chat.sendMessage();
      await tab.until(() => tab.posts.length === 1 && tab.states[0] === 'output-error');
      await tab.ran();
    }
  },

  async automatic_recipe() {
    for (const auto of MODES) {
      const tab = new Tab(`demo-auto-recipe-${auto}`, { auto, recipe: true });
      await tab.say('do two things in Oslo');
      await tab.output(tab.tools[0], 'Yes, confirmed.');
      await tab.output(tab.tools[1], 'No, denied.');
      if (auto === 'approvals') await tab.chat.sendMessage();
      await tab.final();
      assert.equal(tab.posts.length, 2);
      await tab.ran(OSLO);
      await tab.converged();
    }
  },

  async automatic_recipe_after_the_run_was_called_off() {
    for (const auto of MODES) {
      const tab = new Tab(`demo-auto-recipe-off-${auto}`, { auto, recipe: true });
      await tab.say('weather in Oslo');
      await tab.elsewhere({ type: 'cancel', run: true });
      await tab.output(tab.tools[0], 'Yes, confirmed.');
      if (auto === 'approvals') await tab.chat.sendMessage();
      await tab.until(() => tab.posts.length === 2 && tab.states[0] === 'output-error');
      await tab.ran();
      await tab.converged();
    }
  },

  async somebody_elses_chat() {
    const tab = new Tab('demo-else');
    await tab.say('weather in Oslo');
    const other = new Tab('demo-else', { user: 'mallory', messages: tab.chat.messages });
    await other.chat.addToolApprovalResponse({ id: tab.tools[0].approval.id, approved: true });
    for (const end = Date.now() + 30000; Date.now() < end && !other.errors.length; ) {
      await new Promise(resolve => setTimeout(resolve, 5));
    }
    assert.match(other.errors[0], /you have no chat 'chat'/);
    await tab.ran();
  },

  async unknown_chat_has_nothing_to_resume() {
    const tab = new Tab('demo-unknown', { id: 'nobody-knows' });
    await tab.chat.resumeStream();
    assert.equal(tab.chat.status, 'ready');
    assert.deepEqual(tab.chat.messages, []);
    assert.deepEqual(tab.errors, []);
  },
});
