// least-queued: routes to the candidate with the fewest requests relative to its weight.
//
// The router calls configure once for each instance and schedule for every request. Any instance may serve
// any request, so globals must not carry data from one call to the next.
package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

const (
	name    = "least-queued"
	version = "0.1.0"
)

// Requested columns, in this order. All names: wit/README.md of Conductor.
var columns = []string{"load.requests", "worker.weight"}

const (
	requests = iota
	weight
)

// A candidate with this many requests is full; 0 means no limit.
var maxRequests float64

// configure receives the table [policies.least-queued.params] of conductor.toml as JSON. An error is shown to
// the operator, and the previous policy stays active.
func configure(params string) (Plan, error) {
	var err error
	maxRequests, err = readParams(params)
	return Plan{CandidateFeatures: columns}, err
}

// readParams reads {} or {"max-requests": NUMBER}, the only JSON this policy accepts: encoding/json would
// more than double the size of the component.
func readParams(params string) (float64, error) {
	inner, opened := strings.CutPrefix(strings.TrimSpace(params), "{")
	inner, closed := strings.CutSuffix(inner, "}")
	if !opened || !closed {
		return 0, errors.New("the parameters must be a table")
	}
	if strings.TrimSpace(inner) == "" {
		return 0, nil
	}
	name, value, _ := strings.Cut(inner, ":")
	if strings.TrimSpace(name) != `"max-requests"` {
		return 0, errors.New("there is no parameter but `max-requests`")
	}
	most, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(most >= 0) {
		return 0, errors.New("`max-requests` must be a number, 0 or more")
	}
	return most, nil
}

func schedule(_ Request, candidates Candidates) Verdict {
	least, tied, anyFull := math.Inf(1), uint64(0), false
	for row := range candidates.IDs {
		cost, full := cost(candidates.Row(row))
		anyFull = anyFull || full
		if cost < least {
			least, tied = cost, 1
		} else if cost == least {
			tied++
		}
	}
	switch {
	case tied > 0:
		// Picks one of the tied candidates, each with the same probability.
		nth := uint64(0)
		if tied > 1 {
			nth = (Random() >> 32) * tied >> 32
		}
		for row := range candidates.IDs {
			if cost, _ := cost(candidates.Row(row)); cost == least {
				if nth == 0 {
					return Route(row, -least)
				}
				nth--
			}
		}
		return Pass()
	case anyFull:
		// First come, first served: equal orders go by arrival.
		return Queue(0, 50)
	default:
		// No load is known: the router's fallback decides.
		return Pass()
	}
}

// cost returns requests relative to the weight; NaN for a full candidate, which compares as neither less nor
// equal. Unknown numbers are NaN: an unknown weight counts as 1, and an unknown load makes the cost NaN.
func cost(row []float64) (cost float64, full bool) {
	if maxRequests > 0 && row[requests] >= maxRequests {
		return math.NaN(), true
	}
	if row[weight] > 0 {
		return row[requests] / row[weight], false
	}
	return row[requests], false
}
