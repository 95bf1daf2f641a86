package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// An operation of a history that is written by hand.
func known(call, end int64, replies []string, steps ...step) porcupine.Operation {
	return porcupine.Operation{Input: input{steps: steps}, Output: output{replies: replies}, Call: call, Return: end}
}

func unanswered(call, end int64, steps ...step) porcupine.Operation {
	return porcupine.Operation{Input: input{steps: steps}, Output: output{lost: true}, Call: call, Return: end}
}

// checkTheChecker shows that the checker accepts what is right and refuses what is wrong.
func checkTheChecker() error {
	set := func(value string) step { return step{name: "SET", value: value} }
	get, incr := step{name: "GET"}, step{name: "INCR"}
	ok := []string{"OK"}
	cases := []struct {
		name    string
		isRight bool
		history []porcupine.Operation
	}{
		{"writes one after the other", true, []porcupine.Operation{
			known(0, 1, ok, set("1")), known(2, 3, ok, set("2")), known(4, 5, []string{"2"}, get)}},
		{"a read that is stale", false, []porcupine.Operation{
			known(0, 1, ok, set("1")), known(2, 3, ok, set("2")), known(4, 5, []string{"1"}, get)}},
		{"a read of one of two at once", true, []porcupine.Operation{
			known(0, 9, ok, set("1")), known(2, 8, ok, set("2")), known(10, 11, []string{"1"}, get)}},
		{"two reads that see two writes in different orders", false, []porcupine.Operation{
			known(0, 9, ok, set("1")), known(0, 9, ok, set("2")),
			known(1, 2, []string{"1"}, get), known(3, 4, []string{"2"}, get), known(5, 6, []string{"1"}, get)}},
		{"an update that is lost", false, []porcupine.Operation{
			known(0, 9, []string{"1"}, incr), known(1, 8, []string{"1"}, incr)}},
		{"a value that nobody wrote", false, []porcupine.Operation{known(0, 1, []string{"7"}, get)}},
		{"half of a transaction", false, []porcupine.Operation{
			known(0, 9, []string{"OK", "OK"}, set("1"), step{name: "SET", key: 1, value: "1"}),
			known(1, 2, []string{"1," + absent}, step{name: "MGET"})}},
		{"a set that found nothing, and was there", false, []porcupine.Operation{
			known(0, 1, ok, set("1")), known(2, 3, ok, step{name: "SETNX", value: "2"})}},
		{"an unanswered write that was done", true, []porcupine.Operation{
			known(0, 1, ok, set("1")), unanswered(2, 5, set("2")), known(6, 7, []string{"2"}, get)}},
		{"an unanswered write that was not done", true, []porcupine.Operation{
			known(0, 1, ok, set("1")), unanswered(2, 5, set("2")), known(6, 7, []string{"1"}, get)}},
		{"an unanswered write that is done after the restart", false, []porcupine.Operation{
			known(0, 1, ok, set("1")), unanswered(2, 5, set("2")),
			known(6, 7, []string{"1"}, get), known(8, 9, []string{"2"}, get)}},
		{"a write that was acknowledged and is lost", false, []porcupine.Operation{
			known(0, 1, ok, set("1")), unanswered(2, 5, get), known(6, 7, []string{absent}, get)}},
	}
	for _, given := range cases {
		if porcupine.CheckOperations(pairs.ToModel(), given.history) != given.isRight {
			return fmt.Errorf("the checker is wrong about %s", given.name)
		}
	}
	return nil
}
