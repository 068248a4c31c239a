#include "server/try_page.h"

namespace rigel::server {

const std::string_view kTryPage = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Rigel</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem; }
  header { display: flex; gap: 1rem; align-items: baseline; flex-wrap: wrap; }
  #turns > div { white-space: pre-wrap; overflow-wrap: anywhere; padding: .6rem .8rem; margin: .5rem 0; border-radius: .5rem; }
  .user { background: #8883; margin-left: 3rem !important; }
  .assistant { border: 1px solid #8886; }
  .error { color: #c33; }
  form { display: flex; gap: .5rem; align-items: end; }
  textarea { flex: 1; font: inherit; padding: .5rem; }
  details label { display: inline-block; margin-right: 1rem; }
  details input { width: 6rem; }
  #rate { font-size: .85rem; opacity: .7; min-height: 1.3em; }
</style>
<header><h1>Rigel</h1><span id="model"></span></header>
<div id="turns"></div>
<div id="rate"></div>
<form id="ask">
  <textarea id="prompt" rows="3" placeholder="Say something" autofocus></textarea>
  <button id="send">Send</button>
  <button id="stop" type="button" hidden>Stop</button>
  <button id="clear" type="button">Clear</button>
</form>
<details><summary>Settings</summary>
  <label>temperature <input id="temperature" type="number" min="0" max="2" step="0.1" value="0.7"></label>
  <label>max tokens <input id="max_tokens" type="number" min="1" value="512"></label>
  <label>API key <input id="key" type="password"></label>
</details>
<script>
const $ = id => document.getElementById(id);
let messages = [], abort = null;

const headers = () => $('key').value
  ? { 'Content-Type': 'application/json', 'Authorization': 'Bearer ' + $('key').value }
  : { 'Content-Type': 'application/json' };

function bubble(role, text) {
  const div = document.createElement('div');
  div.className = role;
  div.textContent = text;
  $('turns').append(div);
  return div;
}

async function showModel() {
  const reply = await fetch('v1/models', { headers: headers() });
  if (reply.ok) $('model').textContent = (await reply.json()).data[0].id;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split('\n\n');
    rest = parts.pop();
    for (const part of parts) if (part.startsWith('data: ')) yield part.slice(6);
  }
}

async function ask(text) {
  messages.push({ role: 'user', content: text });
  bubble('user', text);
  const answer = bubble('assistant', '');
  let said = '', first = 0, tokens = 0;
  const begun = performance.now();
  abort = new AbortController();
  $('send').hidden = true; $('stop').hidden = false;
  try {
    const reply = await fetch('v1/chat/completions', {
      method: 'POST', headers: headers(), signal: abort.signal,
      body: JSON.stringify({ messages, stream: true, stream_options: { include_usage: true },
        temperature: +$('temperature').value, max_tokens: +$('max_tokens').value }) });
    if (!reply.ok) throw new Error((await reply.json()).error.message);
    for await (const data of events(reply.body)) {
      if (data === '[DONE]') break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) tokens = chunk.usage.completion_tokens;
      const piece = chunk.choices[0]?.delta.content;
      if (piece) { first ||= performance.now(); said += piece; answer.textContent = said; }
    }
    const seconds = (performance.now() - first) / 1000;
    $('rate').textContent = `${tokens} tokens, first after ${Math.round(first - begun)} ms, ` +
      (tokens > 1 ? `then ${((tokens - 1) / seconds).toFixed(1)} a second` : '');
  } catch (problem) {
    if (problem.name !== 'AbortError') bubble('error', problem.message);
  }
  messages.push({ role: 'assistant', content: said });
  abort = null;
  $('send').hidden = false; $('stop').hidden = true;
}

$('ask').onsubmit = event => {
  event.preventDefault();
  const text = $('prompt').value.trim();
  if (!text || abort) return;
  $('prompt').value = '';
  ask(text);
};
$('prompt').onkeydown = event => {
  if (event.key === 'Enter' && !event.shiftKey) { event.preventDefault(); $('ask').requestSubmit(); }
};
$('stop').onclick = () => abort?.abort();
$('clear').onclick = () => { abort?.abort(); messages = []; $('turns').textContent = ''; $('rate').textContent = ''; };
$('key').onchange = showModel;
showModel();
</script>
</html>
)html";

}  // namespace rigel::server
