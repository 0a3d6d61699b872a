package main

// The router's contract (wit/policy.wit) in Go, after the canonical ABI of the component model: numbers arrive as
// parameters, lists as an address and a length in memory got from cabi_realloc, and what is answered lies in memory
// behind the address returned. The policy itself is policy.go.

import (
	"strings"
	"unsafe"
)

// ---- what a policy is given

// Phase says which part of the request is being placed.
type Phase int32

const (
	Mixed Phase = iota
	Prefill
	Decode
)

// Request is what every policy may need to know of the request.
type Request struct {
	Seq        uint64
	HasSession bool
	Session    uint64
	Phase      Phase
	Attempt    uint32
}

// Plan names the numbers that the policy wants to see.
type Plan struct{ RequestFeatures, CandidateFeatures []string }

// Candidates are valid until the call that got them returns.
type Candidates struct {
	IDs []uint32
	// OfRequest has the numbers of the request.
	OfRequest []float64
	rows      []float64
}

// Row has the numbers of one candidate, as the plan ordered them.
func (c Candidates) Row(row int) []float64 {
	width := len(plan.CandidateFeatures)
	return c.rows[row*width : (row+1)*width]
}

// The functions of the router's interface "host". Those of the others are declared alike, as their lowered signatures.

// Random is uniform over all 64-bit values; the same sequence for the same request.
//
//go:wasmimport conductor:policy/host@0.1.0 random
func Random() uint64

// NowUs is the time in microseconds since some moment before the router's start. It stands still during a call.
//
//go:wasmimport conductor:policy/host@0.1.0 now-us
func NowUs() uint64

// Level is how much a line of the log matters.
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

// ---- what a policy answers

// Verdict is the answer as it lies in memory: a tag at 0, and what belongs to it from 8 on.
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

// What cabi_realloc hands out, reused by every call so that a decision makes no garbage.
var (
	arena = make([]uint64, 4096)
	used  int
	// What did not fit, and what the router still has to read: referenced here so that it is not collected.
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

// forget ends the use of all that was handed out.
func forget() { used, spilled, lent = 0, nil, nil }

// A text, or any list, as it lies in memory. Go's pointers have 64 bits; the addresses of WebAssembly have 32.
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
