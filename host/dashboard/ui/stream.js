// Reader of server-sent events with `fetch`, since an EventSource cannot send the admin key in a header.

import { send } from './api.js';

/** Reads events until the stream ends or is aborted, and calls `onEvent` with the name and the data of each. */
export async function readEvents(path, onEvent, signal) {
  const response = await send(path, { headers: { Accept: 'text/event-stream' }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    // An empty line ends an event. An incomplete event stays in `rest` until the next chunk.
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
  // Keep-alive comments have no data.
  if (data.length > 0) onEvent(name, JSON.parse(data.join('\n')));
}
