#!/usr/bin/env python3
"""Compares WebSocket sessions at `/v1/realtime` of a real engine, directly and through Conductor.

    python tests/engines/vllm_realtime.py --engine http://127.0.0.1:8000 --router http://127.0.0.1:8080 \
        [--model NAME] [--wav FILE]

Each case opens a connection, sends its events, and records the received events and the close code.
Ids and times are omitted.
The engine has no such endpoint for a model without audio. Conductor must then forward the engine's refusal unchanged.
`--wav` (PCM16, 16 kHz, mono) adds a transcription.
Needs the package `websockets`. Exits with 1 if the sessions differ.
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

TIMEOUT_S = 60
CHUNK_BYTES = 3200  # 0.1 s of audio
VOLATILE_FIELDS = {"id", "created"}


def normalized_event(text):
    """Returns an event as JSON, without the fields that differ between connections."""
    event = json.loads(text)
    return json.dumps({name: value for name, value in event.items() if name not in VOLATILE_FIELDS}, sort_keys=True)


async def receive_event(socket, transcript):
    """Receives an event and appends it to the transcript."""
    event = normalized_event(await asyncio.wait_for(socket.recv(), TIMEOUT_S))
    transcript.append(event)
    return json.loads(event)


async def invalid_events(socket, transcript, model):
    """Sends invalid events, to each of which the engine responds with an event of its own."""
    await receive_event(socket, transcript)
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
        await receive_event(socket, transcript)
    await socket.send(json.dumps({"type": "session.update", "model": model}))


async def transcription(socket, transcript, model, path):
    """Sends an audio file and appends the final transcription to the transcript."""
    with wave.open(path) as audio:
        frames = audio.readframes(audio.getnframes())
    await receive_event(socket, transcript)
    await socket.send(json.dumps({"type": "session.update", "model": model}))
    await socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
    for start in range(0, len(frames), CHUNK_BYTES):
        audio = base64.b64encode(frames[start : start + CHUNK_BYTES]).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
    await socket.send(json.dumps({"type": "input_audio_buffer.commit", "final": True}))
    while True:
        event = json.loads(normalized_event(await asyncio.wait_for(socket.recv(), TIMEOUT_S)))
        if event["type"] != "transcription.delta":  # The division into deltas depends on timing.
            transcript.append(json.dumps(event, sort_keys=True))
            return


async def session_transcript(base, query, session):
    """Opens a connection, runs a session on it, and returns its transcript as lines."""
    transcript = []
    url = base.replace("http", "ws", 1) + "/v1/realtime" + query
    try:
        async with connect(url, open_timeout=TIMEOUT_S) as socket:
            transcript.append(f"101 {socket.response.headers.get('Sec-WebSocket-Extensions', '')}")
            await session(socket, transcript)
            await socket.close()
            transcript.append(f"closed {socket.close_code}")
    except InvalidStatus as refusal:
        body = (refusal.response.body or b"").decode(errors="replace")
        transcript.append(f"{refusal.response.status_code} {body}")
    except (InvalidHandshake, ConnectionClosed, OSError, asyncio.TimeoutError) as error:
        transcript.append(f"{type(error).__name__} {error}")
    return transcript


def plain_get_status(base, query):
    """Returns the status of a GET request without an upgrade to a WebSocket."""
    try:
        return urllib.request.urlopen(base + "/v1/realtime" + query, timeout=TIMEOUT_S).status
    except urllib.error.HTTPError as error:
        return error.code


def served_model(base):
    with urllib.request.urlopen(base + "/v1/models", timeout=TIMEOUT_S) as response:
        return json.load(response)["data"][0]["id"]


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

    cases = {"invalid events": lambda socket, transcript: invalid_events(socket, transcript, model)}
    if args.wav:
        cases["transcription"] = lambda socket, transcript: transcription(socket, transcript, model, args.wav)
    failure_count = 0
    for name, session in cases.items():
        direct = await session_transcript(engine, query, session)
        through = await session_transcript(router, query, session)
        is_same = direct == through
        failure_count += not is_same
        print(f"{name}: {'same' if is_same else 'DIFFERENT'}")
        for side, transcript in (("engine", direct), ("router", through)):
            for line in transcript:
                print(f"  {side}: {line[:160]}")

    # Responses of the router itself, independent of the engine.
    unknown = (await session_transcript(router, "?model=no-such-model", cases["invalid events"]))[0]
    for claim, is_right in (
        (f"GET without an upgrade is 426: {plain_get_status(router, query)}", plain_get_status(router, query) == 426),
        (f"an unknown model is 404: {unknown[:80]}", unknown.startswith("404 ") and "model_not_found" in unknown),
    ):
        failure_count += not is_right
        print(f"{'ok' if is_right else 'WRONG'}: {claim}")
    sys.exit(1 if failure_count else 0)


asyncio.run(main())
