"""Perfetto traces as other programs write them, by Perfetto's own messages.

In ns::

    thread     0 ......................................... 100     a step
    calls        10-18   20-28
    GPU 0                   30–45    50–80                         a copy, a kernel
"""

from __future__ import annotations

import zlib
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

BEGIN, END = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
INSTANT = TrackEvent.TYPE_INSTANT
_CLEARED, _NEEDS_STATE = 1, 2
_REALTIME, _BOOTTIME, _INCREMENTAL = 1, 6, 64
EPOCH_NS = 1_795_307_814_000_000_000
#: What the machine's clock read when the step of rocprofv3's trace began.
CLOCK_NS = 7_000_000_000


class Kineto:
    """What Kineto's builder writes: a track for each slice, and no categories."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._uuid = 0
        self.process = self.track("Kineto Trace", pid=0)
        self._packet().track_event.CopyFrom(self._instant("trace_metadata"))
        self._packet().track_event.CopyFrom(self._instant("device_properties"))

    def _packet(self) -> Any:
        return self.trace.packet.add(trusted_packet_sequence_id=4711)

    def _instant(self, name: str) -> Any:
        said = {
            "trace_metadata": ("distributedInfo", '{"rank": 3, "world_size": 8}'),
            "device_properties": (
                "properties",
                '{"id": 0, "name": "NVIDIA H100", "numSms": 132}, {"id": 1, "name": "second"}',
            ),
        }[name]
        event = TrackEvent(type=INSTANT, name=name, track_uuid=self.process)
        event.debug_annotations.add(name=said[0], string_value=said[1])
        return event

    def track(
        self, name: str, *, pid: int | None = None, tid: int | None = None, parent: int = 0
    ) -> int:
        """A new track: of a process, a thread, or inside of ``parent``."""
        self._uuid += 1
        track = self._packet().track_descriptor
        track.uuid, track.name = self._uuid, name
        if parent:
            track.parent_uuid = parent
        if tid is not None:
            track.thread.pid, track.thread.tid, track.thread.thread_name = pid, tid, name
        elif pid is not None:
            track.process.pid, track.process.process_name = pid, name.partition(" [")[0]
        return self._uuid

    def slice(
        self, thread: int, name: str, start: int, end: int, metadata: str = "", correlation: int = 0
    ) -> None:
        """A slice of ``thread``, on a track of its own."""
        own = self.track("PLACE_HOLDER", parent=thread)
        self.trace.packet[-1].track_descriptor.name = _name(self.trace, thread)
        begun = self._packet()
        begun.timestamp = EPOCH_NS + start
        event = begun.track_event
        event.type, event.name, event.track_uuid = BEGIN, name, own
        if metadata:
            event.debug_annotations.add(name="metadata", string_value=metadata)
        if correlation:
            event.debug_annotations.add(name="correlation_id", int_value=correlation)
            event.flow_ids.append(correlation)
        ended = self._packet()
        ended.timestamp = EPOCH_NS + end
        ended.track_event.type, ended.track_event.track_uuid = END, own


def _name(trace: Any, uuid: int) -> str:
    tracks = (p.track_descriptor for p in trace.packet if p.HasField("track_descriptor"))
    return str(next(track.name for track in tracks if track.uuid == uuid))


def kineto() -> Any:
    """A trace of Kineto's builder."""
    made = Kineto()
    host = made.track("python3 [CPU]", pid=9)
    gpu = made.track("python3 [GPU 0]", pid=0)
    thread = made.track("thread 12 (python3)", pid=9, tid=12, parent=host)
    stream = made.track("stream 7", pid=0, tid=7, parent=gpu)
    op = '"External id": 3, "Ev Idx": 1, "Input Dims": [[2, 3]], "Input type": ["float"]'
    made.slice(thread, "ProfilerStep#1", 0, 100, '"External id": 1, "Ev Idx": 0', 1)
    made.slice(thread, "aten::mm", 5, 30, op, 3)
    made.slice(thread, "cudaMemcpyAsync", 10, 18, '"cbid": 41, "correlation": 8', 8)
    made.slice(thread, "cudaLaunchKernel", 20, 28, '"cbid": 211, "correlation": 9', 9)
    place = '"device": 0, "context": 1, "stream": 7'
    made.slice(stream, "Memcpy HtoD", 30, 45, f'{place}, "correlation": 8, "bytes": 12', 8)
    launch = '"registers per thread": 32, "grid": [4, 1, 1], "block": [128, 1, 1]'
    made.slice(stream, "sgemm", 50, 80, f'{place}, "correlation": 9, {launch}', 9)
    made.slice(stream, "ProfilerStep#1", 30, 80, "", 1)
    made.slice(made.process, "PyTorch Profiler", 0, 100)
    return made.trace


class RocProf:
    """What rocprofv3 writes by Perfetto's SDK: texts by number, times that count on."""

    def __init__(self, sequence: int = 2) -> None:
        self.trace = Trace()
        self._sequence = sequence
        self._numbers: dict[tuple[str, str], int] = {}
        self._last_ns = CLOCK_NS
        snapshot = self.trace.packet.add(trusted_packet_sequence_id=1).clock_snapshot
        snapshot.clocks.add(clock_id=_BOOTTIME, timestamp=CLOCK_NS)
        snapshot.clocks.add(clock_id=_REALTIME, timestamp=EPOCH_NS)
        self.start()

    def start(self) -> None:
        """Begin the sequence's state anew."""
        packet = self._packet(_CLEARED)
        packet.previous_packet_dropped = 1
        packet.trace_packet_defaults.timestamp_clock_id = _INCREMENTAL
        packet.clock_snapshot.clocks.add(clock_id=_BOOTTIME, timestamp=self._last_ns)
        packet.clock_snapshot.clocks.add(
            clock_id=_INCREMENTAL, timestamp=self._last_ns, is_incremental=True
        )
        self._numbers.clear()

    def _packet(self, flags: int = _NEEDS_STATE) -> Any:
        return self.trace.packet.add(
            trusted_packet_sequence_id=self._sequence, sequence_flags=flags
        )

    def track(self, uuid: int, name: str, tid: int = 0) -> int:
        """A new track, of a thread where ``tid`` is given."""
        track = self._packet().track_descriptor
        track.uuid, track.name = uuid, name
        if tid:
            track.thread.pid, track.thread.tid = 9, tid
        return uuid

    def _iid(self, packet: Any, kind: str, text: str) -> int:
        if (kind, text) not in self._numbers:
            self._numbers[kind, text] = number = len(self._numbers) + 1
            getattr(packet.interned_data, kind).add(iid=number, name=text)
        return self._numbers[kind, text]

    def _time(self, packet: Any, at: int) -> None:
        at_ns = CLOCK_NS + at
        if at_ns >= self._last_ns:
            packet.timestamp, self._last_ns = at_ns - self._last_ns, at_ns
        else:  # back in time: as it is
            packet.timestamp, packet.timestamp_clock_id = at_ns, _BOOTTIME

    def slice(self, track: int, category: str, name: str, at: tuple[int, int], **said: Any) -> None:
        """A slice from ``at[0]`` to ``at[1]``."""
        begun = self._packet()
        self._time(begun, at[0])
        event = begun.track_event
        event.type, event.track_uuid = BEGIN, track
        event.category_iids.append(self._iid(begun, "event_categories", category))
        event.name_iid = self._iid(begun, "event_names", name)
        for key, value in {"begin_ns": CLOCK_NS + at[0], **said}.items():
            told = event.debug_annotations.add(
                name_iid=self._iid(begun, "debug_annotation_names", key)
            )
            if isinstance(value, str):
                told.string_value = value
            else:
                told.uint_value = value
        event.flow_ids.append(1 << 40 | said.get("corr_id", 0))
        ended = self._packet()
        self._time(ended, at[1])
        ended.track_event.type, ended.track_event.track_uuid = END, track


def rocprofv3() -> Any:
    """A trace of rocprofv3: calls first, then copies, then kernels."""
    made = RocProf()
    main = made.track(1, "python3", tid=9)
    thread = made.track(12, "THREAD 1 (12)")
    copies = made.track(1001, "COPY to AGENT [4] STREAM [2] (GPU)")
    back = made.track(1002, "COPY to AGENT [0] STREAM [2] (CPU)")
    compute = made.track(1003, "COMPUTE AGENT [4] STREAM [3] (GPU)")
    made.slice(main, "hsa_api", "hsa_queue_create", (1, 9), tid=9, corr_id=1, kind=2)
    made.slice(thread, "hip_api", "hipMemcpyAsync", (10, 18), tid=12, corr_id=8, kind=3)
    made.slice(thread, "hip_api", "hipLaunchKernel", (20, 28), tid=12, corr_id=9, kind=3)
    made.slice(thread, "hip_api", "__hipPushCallConfiguration", (19, 20), tid=12, corr_id=7)
    made.slice(thread, "marker_api", "step", (0, 100), tid=12, corr_id=2, kind=5)
    ends = {"src_agent": "Agent-0", "dst_agent": "Agent-4", "copy_bytes": 64}
    name = "MEMORY_COPY_HOST_TO_DEVICE"
    made.slice(copies, "memory_copy", name, (30, 45), corr_id=8, tid=12, **ends)
    ends |= {"src_agent": "Agent-4", "dst_agent": "Agent-0"}
    name = "MEMORY_COPY_DEVICE_TO_HOST"
    made.slice(back, "memory_copy", name, (85, 90), corr_id=6, tid=12, **ends)
    made.slice(
        compute,
        "kernel_dispatch",
        "Cijk_Ailk_MT64(float*)",
        (50, 80),
        **{"agent": "Agent-4", "corr_id": 9, "queue": 1, "tid": 12, "workgroup_size": 256},
    )
    return made.trace


def compressed(trace: Any) -> Any:
    """``trace`` with its packets inside of compressed ones."""
    packed = Trace()
    half = len(trace.packet) // 2
    for part in (trace.packet[:half], trace.packet[half:]):
        content = Trace(packet=part).SerializeToString()
        packed.packet.add(compressed_packets=zlib.compress(content))
    return packed
