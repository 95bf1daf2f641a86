// Checks that keys are linearizable, by porcupine (github.com/anishathalye/porcupine): many connections work on a few
// pairs of keys of a real node, the call and the return of each operation are noted, and the checker looks for an order
// in which all of them did at one moment what they say. Also while SQL scans the keys (what a scan saw of a key is
// a read, too), while snapshots are taken and other keys come and go, and with a node that is killed and started again.
//
//	linearizable PROGRAM [TIMES]
//
// With TIMES, so many times as many operations.
package main

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	clients   = 12
	pairCount = 4
	// Operations of a client in a part.
	perClient = 700
	// Times that the node is killed.
	kills = 4
	// How long the checker may take for a part.
	patience = 5 * time.Minute
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("linearizable PROGRAM [TIMES]"))
	}
	times := 1
	if len(os.Args) > 2 {
		number, err := strconv.Atoi(os.Args[2])
		if err != nil || number < 1 {
			fail(fmt.Errorf("%q is no number of times", os.Args[2]))
		}
		times = number
	}
	if err := checkTheChecker(); err != nil {
		fail(err)
	}
	total := 0
	for _, part := range []part{
		{name: "alone"},
		{name: "beside SQL", beside: []func(*run){scan, lookUp}},
		{name: "beside snapshots and keys that come and go", beside: []func(*run){snapshots, others}},
		{name: "killed", kills: kills},
	} {
		count, err := part.check(os.Args[1], times)
		if err != nil {
			fail(fmt.Errorf("%s: %w", part.name, err))
		}
		total += count
	}
	fmt.Printf("porcupine: %d operations of %d clients are linearizable, also beside SQL and snapshots, and when killed\n",
		total, clients)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

// A part is one kind of run.
type part struct {
	name   string
	beside []func(*run)
	kills  int
}

// A run is the life of a node, or several lives where it is killed.
type run struct {
	node    *node
	start   time.Time
	ended   chan struct{}
	mutex   sync.Mutex
	history []porcupine.Operation
	// The first thing that went wrong, other than by a kill.
	wrong error
	dying atomic.Bool
	next  atomic.Int64
}

func (r *run) now() int64 { return time.Since(r.start).Nanoseconds() }

func (r *run) note(operations ...porcupine.Operation) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.history = append(r.history, operations...)
}

func (r *run) failed(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.wrong == nil && !r.dying.Load() {
		r.wrong = err
	}
}

// check runs a part, and returns the number of operations that were checked.
func (p part) check(program string, times int) (int, error) {
	data, err := os.MkdirTemp("", "linearizable-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(data)
	all := &run{start: time.Now()}
	lives := p.kills*times + 1
	var history []porcupine.Operation
	for life := 0; life < lives; life++ {
		if all.node, err = startNode(program, data); err != nil {
			return 0, err
		}
		all.ended, all.history = make(chan struct{}), nil
		all.dying.Store(false)
		count := perClient * times
		if p.kills > 0 {
			count = perClient / 4
		}
		all.live(p, count, life+1 < lives)
		if all.wrong != nil {
			return 0, all.wrong
		}
		of := all.history
		if life+1 < lives {
			of = survivors(of, all.now())
		}
		history = append(history, of...)
	}
	return len(history), verdict(history)
}

// live has the clients work on a node that runs, which is killed at the end, in the midst of their work if it is to be.
func (r *run) live(p part, count int, isKilled bool) {
	var working, beside sync.WaitGroup
	done := make(chan struct{})
	var answered atomic.Int64
	for client := 0; client < clients; client++ {
		working.Add(1)
		go func(client int) {
			defer working.Done()
			r.work(client, count, isKilled, &answered)
		}(client)
	}
	for _, other := range p.beside {
		beside.Add(1)
		go func(other func(*run)) {
			defer beside.Done()
			other(r)
		}(other)
	}
	if isKilled {
		for answered.Load() < int64(count*clients/2) && r.problem() == nil {
			time.Sleep(time.Millisecond)
		}
		r.dying.Store(true)
		r.node.kill()
	}
	go func() { working.Wait(); close(r.ended); beside.Wait(); close(done) }()
	<-done
	if !isKilled {
		r.dying.Store(true)
		r.node.kill()
	}
}

func (r *run) problem() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.wrong
}

// work does the operations of a client; one that is to be killed goes on until then.
func (r *run) work(client, count int, isKilled bool, answered *atomic.Int64) {
	random := rand.New(rand.NewSource(int64(client) + r.next.Load()*7919))
	connection, err := connect(r.node.redis)
	if err != nil {
		r.failed(err)
		return
	}
	defer connection.socket.Close()
	var seen [pairCount][2]string
	for i := 0; isKilled || i < count; i++ {
		in := r.random(random, &seen)
		call := r.now()
		out, err := connection.ask(in)
		if err != nil {
			r.failed(err)
			// Whether it was done is told by what others see.
			r.note(porcupine.Operation{ClientId: client, Input: in, Output: output{lost: true}, Call: call, Return: -1})
			return
		}
		r.note(porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: r.now()})
		answered.Add(1)
		if in.steps[0].name == "GET" {
			seen[in.pair][in.steps[0].key] = out.replies[0]
		}
	}
}

// random makes an operation; values that are written are different ones.
func (r *run) random(random *rand.Rand, seen *[pairCount][2]string) input {
	pair := random.Intn(pairCount)
	one := func(names ...string) step {
		s := step{name: names[random.Intn(len(names))], key: random.Intn(2), value: strconv.FormatInt(r.next.Add(1), 10)}
		if s.name == "FP.CAS" {
			s.expected = seen[pair][s.key]
		}
		if s.name == "APPEND" {
			s.value = strconv.Itoa(random.Intn(10))
		}
		return s
	}
	names := []string{"GET", "GET", "GET", "SET", "INCR", "INCR", "APPEND", "DEL", "SETNX", "GETSET", "GETDEL", "FP.CAS",
		"MGET", "MSET"}
	if random.Intn(6) > 0 {
		return input{pair, []step{one(names...)}}
	}
	// A transaction.
	in := input{pair: pair}
	for i := 0; i <= 1+random.Intn(3); i++ {
		in.steps = append(in.steps, one(names...))
	}
	return in
}

// words are a step's command.
func (s step) words(pair int) []string {
	name := func(key int) string { return fmt.Sprintf("hot:%d:%d", pair, key) }
	switch s.name {
	case "GET", "GETDEL", "DEL", "INCR":
		return []string{s.name, name(s.key)}
	case "MGET":
		return []string{s.name, name(0), name(1)}
	case "MSET":
		return []string{s.name, name(0), s.value, name(1), s.value}
	case "SETNX":
		return []string{"SET", name(s.key), s.value, "NX"}
	case "FP.CAS":
		return []string{s.name, name(s.key), s.expected, s.value}
	}
	return []string{s.name, name(s.key), s.value}
}

// ask does an operation: several steps are a transaction.
func (c *connection) ask(in input) (output, error) {
	if len(in.steps) == 1 {
		if err := c.send(in.steps[0].words(in.pair)); err != nil {
			return output{}, err
		}
		reply, err := c.read()
		return output{replies: []string{strings.Join(reply, ",")}}, err
	}
	commands := [][]string{{"MULTI"}}
	for _, step := range in.steps {
		commands = append(commands, step.words(in.pair))
	}
	if err := c.send(append(commands, []string{"EXEC"})...); err != nil {
		return output{}, err
	}
	for range commands {
		if _, err := c.read(); err != nil {
			return output{}, err
		}
	}
	replies, err := c.read()
	if err == nil && len(replies) != len(in.steps) {
		err = fmt.Errorf("a transaction of %d commands has %d replies", len(in.steps), len(replies))
	}
	return output{replies: replies}, err
}

// survivors is what a history promises of a node that was killed, and was gone at a time. What was not answered may have
// been done until then. A read may have seen what was not durable yet (docs/redis.md), and promises something only where
// a change was acknowledged that began after it.
func survivors(history []porcupine.Operation, gone int64) []porcupine.Operation {
	var changed int64
	doesChange := func(operation porcupine.Operation) bool {
		for i, step := range operation.Input.(input).steps {
			if step.changes(operation.Output.(output).replies[i]) {
				return true
			}
		}
		return false
	}
	for _, operation := range history {
		if !operation.Output.(output).lost && operation.Call > changed && doesChange(operation) {
			changed = operation.Call
		}
	}
	var kept []porcupine.Operation
	for _, operation := range history {
		if operation.Output.(output).lost {
			operation.Return = gone
		} else if operation.Return >= changed && !doesChange(operation) {
			continue
		}
		kept = append(kept, operation)
	}
	return kept
}

// verdict asks the checker.
func verdict(history []porcupine.Operation) error {
	for pair, operations := range divided(history) {
		model := pairs.ToModel()
		result, info := porcupine.CheckOperationsVerbose(model, operations, patience)
		switch result {
		case porcupine.Illegal:
			file := fmt.Sprintf("%s/not-linearizable-%d.html", os.TempDir(), pair)
			if err := porcupine.VisualizePath(model, info, file); err != nil {
				return err
			}
			return fmt.Errorf("the keys of pair %d are not linearizable: %s shows where", pair, file)
		case porcupine.Unknown:
			return fmt.Errorf("the checker did not end within %s", patience)
		}
	}
	return nil
}

// until calls f again and again as long as the clients work.
func (r *run) until(f func() error) {
	for {
		select {
		case <-r.ended:
			return
		default:
			if err := f(); err != nil {
				r.failed(err)
				return
			}
		}
	}
}

// scan reads all keys by SQL. What it saw of a pair is a read of both keys.
func scan(r *run) {
	r.until(func() error { return r.read(`select key, value from "default" where key like 'hot:%'`) })
}

// lookUp reads the same keys by their names.
func lookUp(r *run) {
	var names []string
	for pair := 0; pair < pairCount; pair++ {
		names = append(names, fmt.Sprintf("'hot:%d:0', 'hot:%d:1'", pair, pair))
	}
	r.until(func() error {
		return r.read(`select key, value from "default" where key in (` + strings.Join(names, ", ") + ")")
	})
}

func (r *run) read(sql string) error {
	call := r.now()
	rows, err := r.node.query(sql)
	if err != nil {
		return err
	}
	end := r.now()
	found := map[string]string{}
	for _, row := range rows {
		found[row[0]] = row[1]
	}
	for pair := 0; pair < pairCount; pair++ {
		value := func(key int) string {
			if value, isThere := found[fmt.Sprintf("hot:%d:%d", pair, key)]; isThere {
				return value
			}
			return absent
		}
		in := input{pair, []step{{name: "MGET"}}}
		out := output{replies: []string{value(0) + "," + value(1)}}
		r.note(porcupine.Operation{ClientId: clients, Input: in, Output: out, Call: call, Return: end})
	}
	return nil
}

// snapshots has one taken after the other.
func snapshots(r *run) {
	connection, err := connect(r.node.redis)
	if err != nil {
		r.failed(err)
		return
	}
	r.until(func() error {
		if err := connection.send([]string{"BGSAVE"}); err != nil {
			return err
		}
		_, err := connection.read()
		time.Sleep(20 * time.Millisecond)
		return err
	})
}

// others sets and removes other keys, so that indexes grow and shrink and entries move.
func others(r *run) {
	connection, err := connect(r.node.redis)
	if err != nil {
		r.failed(err)
		return
	}
	round := 0
	r.until(func() error {
		round++
		var commands [][]string
		for i := 0; i < 200; i++ {
			name := fmt.Sprintf("other:%d", (round*200+i)%20000)
			if round/100%2 == 0 {
				commands = append(commands, []string{"SET", name, strings.Repeat("v", (i*37+round)%900)})
			} else {
				commands = append(commands, []string{"DEL", name})
			}
		}
		if err := connection.send(commands...); err != nil {
			return err
		}
		for range commands {
			if _, err := connection.read(); err != nil {
				return err
			}
		}
		return nil
	})
}
