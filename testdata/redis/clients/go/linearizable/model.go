package main

import (
	"math"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// A step is one command on one or both keys of a pair.
type step struct {
	name string
	key  int
	// The value that is written, and of FP.CAS the one that is expected.
	value, expected string
}

// An input is what a client asks to be done at once: a command, or a transaction of several.
type input struct {
	pair  int
	steps []step
}

// An output is what came back: a reply for each step, or nothing where the node died before it answered.
type output struct {
	replies []string
	lost    bool
}

// A state has the values of a pair of keys.
type state [2]string

// The text of what is absent, in states and in replies.
const absent = "\x00nil"

// The text of an error reply, whatever it says.
const refused = "\x00error"

// apply does a step; the second result is its reply.
func (s state) apply(step step) (state, string) {
	old := s[step.key]
	is := func(is bool) string {
		if is {
			return "1"
		}
		return "0"
	}
	switch step.name {
	case "GET":
		return s, old
	case "MGET":
		return s, s[0] + "," + s[1]
	case "SET":
		s[step.key] = step.value
		return s, "OK"
	case "MSET":
		s[0], s[1] = step.value, step.value
		return s, "OK"
	case "SETNX":
		if old == absent {
			s[step.key] = step.value
			return s, "OK"
		}
		return s, absent
	case "GETSET":
		s[step.key] = step.value
		return s, old
	case "GETDEL":
		s[step.key] = absent
		return s, old
	case "DEL":
		s[step.key] = absent
		return s, is(old != absent)
	case "FP.CAS":
		if old == absent {
			return s, absent
		}
		if old == step.expected {
			s[step.key] = step.value
		}
		return s, is(old == step.expected)
	case "APPEND":
		if old == absent {
			old = ""
		}
		s[step.key] = old + step.value
		return s, strconv.Itoa(len(old) + len(step.value))
	case "INCR":
		if old == absent {
			old = "0"
		}
		number, err := strconv.ParseInt(old, 10, 64)
		if err != nil || strconv.FormatInt(number, 10) != old || number == math.MaxInt64 {
			return s, refused
		}
		s[step.key] = strconv.FormatInt(number+1, 10)
		return s, s[step.key]
	}
	panic("no command " + step.name)
}

// changes tells whether a step with this reply has changed something, so that it is in the node's log.
func (s step) changes(reply string) bool {
	switch s.name {
	case "GET", "MGET":
		return false
	case "SETNX", "GETDEL":
		return reply != absent
	case "DEL", "FP.CAS":
		return reply == "1"
	}
	return reply != refused
}

// pairs describes what the node must be: pairs of keys, each of which changes at single moments.
var pairs = porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{state{absent, absent}} },
	Step: func(before, in, out interface{}) []interface{} {
		after, got := before.(state), out.(output)
		for i, step := range in.(input).steps {
			var reply string
			after, reply = after.apply(step)
			if !got.lost && got.replies[i] != reply {
				return nil
			}
		}
		if got.lost {
			// It may have been done, as a whole, or not.
			return []interface{}{before, after}
		}
		return []interface{}{after}
	},
	Equal: func(one, other interface{}) bool { return one == other },
	Hash: func(s interface{}) uint64 {
		hash := uint64(14695981039346656037)
		for _, value := range s.(state) {
			for i := 0; i < len(value); i++ {
				hash = (hash ^ uint64(value[i])) * 1099511628211
			}
			hash *= 1099511628211
		}
		return hash
	},
}

// divided returns the operations of each pair of keys.
func divided(history []porcupine.Operation) map[int][]porcupine.Operation {
	parts := map[int][]porcupine.Operation{}
	for _, operation := range history {
		pair := operation.Input.(input).pair
		parts[pair] = append(parts[pair], operation)
	}
	return parts
}
