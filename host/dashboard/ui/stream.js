// Server-sent events read by `fetch`: an EventSource cannot send the admin key in a header.

import { send } from './api.js';

/** Reads events until the stream ends or is aborted, and calls `onEvent` with the name and the data of each. */
export async function readEvents(path, onEvent, signal) {
  const response = await send(path, { headers: { Accept: 'text/event-stream' }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    // An event ends at an empty line. What follows the last one is kept until the rest of it has come.
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) emit(block, onEvent);
  }
}

function emit(block, onEvent) {
  let name = 'message';
  const data = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event:')) name = line.slice(6).trim();
    else if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
  }
  // Comments keep the connection open, and have no data.
  if (data.length > 0) onEvent(name, JSON.parse(data.join('\n')));
}
