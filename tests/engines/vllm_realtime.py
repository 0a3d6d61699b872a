#!/usr/bin/env python3
"""Opens WebSockets at `/v1/realtime` of a real engine directly and through Conductor, and compares what happens.

    python tests/engines/vllm_realtime.py --engine http://127.0.0.1:8000 --router http://127.0.0.1:8080 [--model NAME] [--wav FILE]

Each case opens a connection, sends its events and notes what comes back, up to the close code; ids and times are left out. A model that
hears nothing has no such endpoint: then the engine's own refusal must come through as it is. With `--wav` (PCM16, 16 kHz, mono) a
transcription is compared too. Needs the package `websockets`. Exits with 1 when the two differ.
"""

import argparse
import asyncio
import base64
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
import wave

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

PATIENCE = 60
PIECE = 3200  # a tenth of a second
CHANGING = {"id", "created"}


def note(text):
    """An event without what differs from one connection to the next."""
    event = json.loads(text)
    return json.dumps({name: value for name, value in event.items() if name not in CHANGING}, sort_keys=True)


async def hear(socket, notes):
    event = note(await asyncio.wait_for(socket.recv(), PATIENCE))
    notes.append(event)
    return json.loads(event)


async def protocol(socket, notes, model):
    """Mistakes, each of which has an answer of its own."""
    await hear(socket, notes)
    for text in (
        "{ not json",
        json.dumps({"type": "nonsense"}),
        json.dumps({"type": "session.update"}),
        json.dumps({"type": "session.update", "model": "no-such-model"}),
        json.dumps({"type": "input_audio_buffer.commit"}),
        json.dumps({"type": "input_audio_buffer.append", "audio": ""}),
        json.dumps({"type": "x" * 300_000}),
    ):
        await socket.send(text)
        await hear(socket, notes)
    await socket.send(json.dumps({"type": "session.update", "model": model}))


async def transcription(socket, notes, model, path):
    with wave.open(path) as audio:
        frames = audio.readframes(audio.getnframes())
    await hear(socket, notes)
    await socket.send(json.dumps({"type": "session.update", "model": model}))
    await socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
    for start in range(0, len(frames), PIECE):
        audio = base64.b64encode(frames[start : start + PIECE]).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
    await socket.send(json.dumps({"type": "input_audio_buffer.commit", "final": True}))
    while True:
        event = json.loads(note(await asyncio.wait_for(socket.recv(), PATIENCE)))
        if event["type"] != "transcription.delta":  # how the words are cut is a matter of time
            notes.append(json.dumps(event, sort_keys=True))
            return


async def outcome(base, query, talk):
    """What happens on one connection, as lines."""
    notes = []
    url = base.replace("http", "ws", 1) + "/v1/realtime" + query
    try:
        async with connect(url, open_timeout=PATIENCE) as socket:
            notes.append(f"101 {socket.response.headers.get('Sec-WebSocket-Extensions', '')}")
            await talk(socket, notes)
            await socket.close()
            notes.append(f"closed {socket.close_code}")
    except InvalidStatus as refused:
        body = (refused.response.body or b"").decode(errors="replace")
        notes.append(f"{refused.response.status_code} {body}")
    except (InvalidHandshake, ConnectionClosed, OSError, asyncio.TimeoutError) as error:
        notes.append(f"{type(error).__name__} {error}")
    return notes


def plain(base, query):
    """The status of a GET that asks for no WebSocket."""
    try:
        return urllib.request.urlopen(base + "/v1/realtime" + query, timeout=PATIENCE).status
    except urllib.error.HTTPError as error:
        return error.code


def served_model(base):
    with urllib.request.urlopen(base + "/v1/models", timeout=PATIENCE) as answer:
        return json.load(answer)["data"][0]["id"]


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--router", required=True)
    parser.add_argument("--model")
    parser.add_argument("--wav")
    args = parser.parse_args()
    engine, router = args.engine.rstrip("/"), args.router.rstrip("/")
    model = args.model or served_model(engine)
    query = "?" + urllib.parse.urlencode({"model": model})

    cases = {"protocol": lambda socket, notes: protocol(socket, notes, model)}
    if args.wav:
        cases["transcription"] = lambda socket, notes: transcription(socket, notes, model, args.wav)
    failed = 0
    for name, talk in cases.items():
        direct, through = await outcome(engine, query, talk), await outcome(router, query, talk)
        same = direct == through
        failed += not same
        print(f"{name}: {'same' if same else 'DIFFERENT'}")
        for side, notes in (("engine", direct), ("router", through)):
            for line in notes:
                print(f"  {side}: {line[:160]}")

    # The router's own answers, whatever the engine says.
    unknown = (await outcome(router, "?model=no-such-model", cases["protocol"]))[0]
    for what, is_right in (
        (f"GET without an upgrade is 426: {plain(router, query)}", plain(router, query) == 426),
        (f"an unknown model is 404: {unknown[:80]}", unknown.startswith("404 ") and "model_not_found" in unknown),
    ):
        failed += not is_right
        print(f"{'ok' if is_right else 'WRONG'}: {what}")
    sys.exit(1 if failed else 0)


asyncio.run(main())
