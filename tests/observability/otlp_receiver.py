#!/usr/bin/env python3
"""OTLP receiver (gRPC) that decodes the official messages and writes one JSON line for each span.

    otlp_receiver.py PORT FILE

Needs the packages opentelemetry-proto and grpcio.
"""

import concurrent.futures
import json
import sys

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


def value(any_value):
    """Returns the JSON value of an AnyValue."""
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(item) for item in any_value.array_value.values]
    return getattr(any_value, kind) if kind else None


def attributes(pairs):
    return {pair.key: value(pair.value) for pair in pairs}


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Trace service that appends the spans of each export to the file."""

    def __init__(self, file):
        self.file = file

    def Export(self, request, context):
        lines = []
        for process in request.resource_spans:
            resource = attributes(process.resource.attributes)
            for scope in process.scope_spans:
                for span in scope.spans:
                    lines.append({
                        "trace": span.trace_id.hex(), "span": span.span_id.hex(), "parent": span.parent_span_id.hex(),
                        "name": span.name, "kind": span.kind, "start": span.start_time_unix_nano,
                        "end": span.end_time_unix_nano, "attributes": attributes(span.attributes),
                        "events": [event.name for event in span.events], "status": span.status.code,
                        "links": [link.span_id.hex() for link in span.links], "resource": resource,
                    })
        self.file.write("".join(json.dumps(line) + "\n" for line in lines))
        self.file.flush()
        return trace_service_pb2.ExportTraceServiceResponse()


def main():
    port, path = sys.argv[1:]
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Receiver(open(path, "a")), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
