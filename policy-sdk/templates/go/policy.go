// least-queued: the candidate with the fewest requests for its weight.
//
// The router calls configure once for each instance and schedule for every request. Any instance may answer any request,
// so nothing that matters is kept here between calls.
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

// The columns asked for, in this order. All names: wit/README.md of Conductor.
var columns = []string{"load.requests", "worker.weight"}

const (
	requests = iota
	weight
)

// A candidate with so many requests gets no more; 0 is no limit.
var maxRequests float64

// configure gets the table [policies.least-queued.params] of conductor.toml as JSON. An error is shown to the operator, and
// the policy before this one keeps deciding.
func configure(params string) (Plan, error) {
	var err error
	maxRequests, err = readParams(params)
	return Plan{CandidateFeatures: columns}, err
}

// readParams reads {} or {"max-requests": NUMBER}, which is all the JSON this policy knows: encoding/json would more than
// double the size of the component.
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
		// The n-th of those tied, each as likely as the others.
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
		// First come, first served.
		return Queue(float64(NowUs()), 50)
	default:
		// Nobody's load is known: the router's own fallback decides.
		return Pass()
	}
}

// cost is the requests for the weight, or NaN for a row that is out of the question, since NaN is neither less than nor
// equal to anything. What the router does not know is NaN: an unknown weight counts as 1, an unknown load stays NaN.
func cost(row []float64) (cost float64, full bool) {
	if maxRequests > 0 && row[requests] >= maxRequests {
		return math.NaN(), true
	}
	if row[weight] > 0 {
		return row[requests] / row[weight], false
	}
	return row[requests], false
}
