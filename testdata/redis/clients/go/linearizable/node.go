package main

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// A node is a process that serves keys of a data directory.
type node struct {
	program     string
	process     *exec.Cmd
	pool, redis string
	output      io.ReadCloser
}

func startNode(program, data string) (*node, error) {
	process := exec.Command(program, "serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0",
		"--memory", "512MiB", "--data-dir", data, "--fsync", "always")
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	ready, err := bufio.NewReader(output).ReadString('\n')
	at := strings.Index(ready, "farpool://")
	behind := strings.Index(ready, "redis://")
	if err != nil || at < 0 || behind < 0 {
		process.Process.Kill()
		process.Wait()
		return nil, fmt.Errorf("the node is not ready: %q %v", ready, err)
	}
	address := func(text string) string {
		return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;\n", r) })[0]
	}
	redis := strings.TrimPrefix(address(ready[behind:]), "redis://")
	return &node{program, process, address(ready[at:]), redis, output}, nil
}

// kill ends the process at once, and returns when it is gone.
func (n *node) kill() {
	n.process.Process.Kill()
	n.process.Wait()
}

// query returns the rows of a statement.
func (n *node) query(sql string) ([][]string, error) {
	command := exec.Command(n.program, "sql", "--pool", n.pool, "--format", "csv", "-c", sql)
	var said strings.Builder
	command.Stderr = &said
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", sql, err, said.String())
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("%q: %v", text, err)
	}
	return rows[1:], nil
}

// A connection speaks as much of the Redis protocol as is needed.
type connection struct {
	socket net.Conn
	reader *bufio.Reader
}

func connect(address string) (*connection, error) {
	socket, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{socket, bufio.NewReader(socket)}, nil
}

func (c *connection) send(commands ...[]string) error {
	var text strings.Builder
	for _, words := range commands {
		fmt.Fprintf(&text, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	_, err := io.WriteString(c.socket, text.String())
	return err
}

// read returns the next reply; of an array, its elements.
func (c *connection) read() ([]string, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, text := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '+', ':':
		return []string{text}, nil
	case '-':
		if strings.HasPrefix(text, "MISCONF") || strings.HasPrefix(text, "OOM") {
			return nil, fmt.Errorf("the node says %s", text)
		}
		return []string{refused}, nil
	}
	count, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("a reply begins with %q", line)
	}
	if count < 0 {
		return []string{absent}, nil
	}
	if kind == '$' {
		value := make([]byte, count+2)
		_, err := io.ReadFull(c.reader, value)
		return []string{string(value[:count])}, err
	}
	var all []string
	for i := 0; i < count; i++ {
		element, err := c.read()
		if err != nil {
			return nil, err
		}
		all = append(all, strings.Join(element, ","))
	}
	return all, nil
}
