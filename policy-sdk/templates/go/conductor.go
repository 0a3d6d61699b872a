package main

// The router's contract (wit/policy.wit) in Go, by the canonical ABI of the component model. Numbers arrive
// as parameters. Lists arrive as an address and a length in memory from cabi_realloc. Results lie in memory
// behind the returned address. The policy itself is policy.go.

import (
	"strings"
	"unsafe"
)

// ---- input of a policy

// Phase is the part of the request that the call places.
type Phase int32

const (
	Mixed Phase = iota
	Prefill
	Decode
)

// Request holds the facts of the request.
type Request struct {
	Seq        uint64
	HasSession bool
	Session    uint64
	Phase      Phase
	Attempt    uint32
}

// Plan names the numbers that the policy requests.
type Plan struct{ RequestFeatures, CandidateFeatures []string }

// Candidates are valid until their call returns.
type Candidates struct {
	IDs []uint32
	// OfRequest holds the numbers of the request.
	OfRequest []float64
	rows      []float64
}

// Row returns the numbers of one candidate, in the order of the plan.
func (c Candidates) Row(row int) []float64 {
	width := len(plan.CandidateFeatures)
	return c.rows[row*width : (row+1)*width]
}

// Functions of the router's interface "host". Functions of the other interfaces are declared the same way, by
// their lowered signatures.

// Random returns a uniform 64-bit number; the sequence is the same for the same request.
//
//go:wasmimport conductor:policy/host@0.1.0 random
func Random() uint64

// NowUs returns microseconds on a monotonic clock, which is frozen during a call.
//
//go:wasmimport conductor:policy/host@0.1.0 now-us
func NowUs() uint64

// Level is the severity of a log line.
type Level = uint32

const (
	Debug Level = iota
	Info
	Warn
	Error
)

// Log writes a line to the router's log.
//
//go:wasmimport conductor:policy/host@0.1.0 log
func Log(level Level, message string)

// ---- output of a policy

// Verdict is the result as it lies in memory: a tag at 0, and its fields from 8 on.
type Verdict struct {
	tag     uint8
	payload [3]uint64
}

// Route sends the request to the candidate in that row.
func Route(row int, score float64) Verdict {
	v := Verdict{tag: 0}
	*(*uint32)(at(&v, 0)) = uint32(row)
	*(*uint8)(at(&v, 4)) = 0 // No separate worker for the prefill.
	*(*float64)(at(&v, 16)) = score
	return v
}

// Queue holds the request in the router's queue.
func Queue(order float64, askAgainMs uint32) Verdict {
	v := Verdict{tag: 1}
	*(*float64)(at(&v, 0)) = order
	*(*uint32)(at(&v, 8)) = askAgainMs
	return v
}

// Reject answers the client with an error.
func Reject(status uint16, retryAfterMs uint32, reason string) Verdict {
	v := Verdict{tag: 2}
	*(*uint16)(at(&v, 0)) = status
	*(*uint32)(at(&v, 4)) = retryAfterMs
	*(*text)(at(&v, 8)) = lend(reason)
	return v
}

// Pass leaves the decision to the router's fallback.
func Pass() Verdict { return Verdict{tag: 3} }

func at(v *Verdict, offset uintptr) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(&v.payload), offset)
}

// ---- the exports

var (
	plan   Plan
	answer [4]uint64
)

//go:wasmexport conductor:policy/policy@0.1.0#describe
func exportedDescribe() unsafe.Pointer {
	forget()
	*(*[2]text)(unsafe.Pointer(&answer)) = [2]text{lend(name), lend(version)}
	return unsafe.Pointer(&answer)
}

//go:wasmexport conductor:policy/policy@0.1.0#configure
func exportedConfigure(params unsafe.Pointer, length uint32) unsafe.Pointer {
	var err error
	plan, err = configure(strings.Clone(unsafe.String((*byte)(params), length)))
	forget()
	payload := unsafe.Add(unsafe.Pointer(&answer), 4)
	if err != nil {
		*(*uint8)(unsafe.Pointer(&answer)) = 1
		*(*text)(payload) = lend(err.Error())
	} else {
		*(*uint8)(unsafe.Pointer(&answer)) = 0
		*(*[2]text)(payload) = [2]text{lendAll(plan.RequestFeatures), lendAll(plan.CandidateFeatures)}
	}
	return unsafe.Pointer(&answer)
}

//go:wasmexport conductor:policy/schedule@0.1.0#schedule
func exportedSchedule(seq uint64, hasSession int32, session uint64, phase int32, attempt uint32,
	ids unsafe.Pointer, rows uint32, numbers unsafe.Pointer, count uint32) unsafe.Pointer {
	all := unsafe.Slice((*float64)(numbers), count)
	request := Request{seq, hasSession != 0, session, Phase(phase), attempt}
	own := len(plan.RequestFeatures)
	verdict := schedule(request, Candidates{unsafe.Slice((*uint32)(ids), rows), all[:own], all[own:]})
	*(*Verdict)(unsafe.Pointer(&answer)) = verdict
	return unsafe.Pointer(&answer)
}

//go:wasmexport cabi_post_conductor:policy/schedule@0.1.0#schedule
func afterSchedule(unsafe.Pointer) { forget() }

func main() {}

// ---- memory that the router writes to and reads from

// Memory for cabi_realloc, reused by every call so that a decision creates no garbage.
var (
	arena = make([]uint64, 4096)
	used  int
	// Overflow allocations and results that the router still has to read, referenced so that they are not
	// collected.
	spilled [][]uint64
	lent    []any
)

//go:wasmexport cabi_realloc
func cabiRealloc(old unsafe.Pointer, oldSize, align, size uint32) unsafe.Pointer {
	words := int(size+7) / 8
	if used+words > len(arena) {
		spilled = append(spilled, make([]uint64, words))
		return unsafe.Pointer(unsafe.SliceData(spilled[len(spilled)-1]))
	}
	start := unsafe.Pointer(unsafe.SliceData(arena[used:]))
	used += words
	return start
}

// forget releases all memory of a call.
func forget() { used, spilled, lent = 0, nil, nil }

// A text or list as it lies in memory. Go's pointers have 64 bits; WebAssembly's addresses have 32.
type text struct{ start, length uint32 }

func lend(s string) text {
	lent = append(lent, s)
	return text{address(unsafe.Pointer(unsafe.StringData(s))), uint32(len(s))}
}

func lendAll(list []string) text {
	texts := make([]text, len(list))
	for i, s := range list {
		texts[i] = lend(s)
	}
	lent = append(lent, texts)
	return text{address(unsafe.Pointer(unsafe.SliceData(texts))), uint32(len(list))}
}

func address(of unsafe.Pointer) uint32 { return uint32(uintptr(of)) }
