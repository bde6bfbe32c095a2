// Package load holds what every driver shares: its flags, its pace, its clock and its one line of result.
package load

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"
)

// Order says what to do to a server; each driver reads it from its command line.
type Order struct {
	Work      string
	Address   string
	Topic     string
	Size      int
	Count     int
	Producers int
	Consumers int
	Topics    int
	Rate      int
	InFlight  int
}

// Result is printed as one line of JSON; the percentiles are those of end-to-end latency, zero if not asked for.
type Result struct {
	Messages int     `json:"messages"`
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	P999     float64 `json:"p999_us"`
}

// Main reads the order, performs it and prints the result.
func Main(perform func(Order) (Result, error)) {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: %s publish|consume|fanout|latency -address HOST:PORT …", os.Args[0]))
	}
	order := Order{Work: os.Args[1]}
	flags := flag.NewFlagSet(order.Work, flag.ExitOnError)
	flags.StringVar(&order.Address, "address", "", "HOST:PORT of the server")
	flags.StringVar(&order.Topic, "topic", "bench", "what the messages are published to")
	flags.IntVar(&order.Size, "size", 128, "bytes of a message")
	flags.IntVar(&order.Count, "count", 1, "messages in all")
	flags.IntVar(&order.Producers, "producers", 1, "connections that publish")
	flags.IntVar(&order.Consumers, "consumers", 1, "consumers, each of which receives everything")
	flags.IntVar(&order.Topics, "topics", 1, "topics to spread the messages over")
	flags.IntVar(&order.Rate, "rate", 0, "messages a second; 0 is as fast as possible")
	flags.IntVar(&order.InFlight, "in-flight", 4096, "messages a producer may have unconfirmed")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	result, err := perform(order)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Pace calls send with the moment a message is due, at that moment; a late pacer catches up at once.
func Pace(count, rate int, send func(due time.Time) error) error {
	start := time.Now()
	for sent := 0; sent < count; sent++ {
		due := start.Add(time.Duration(float64(sent) / float64(rate) * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		if err := send(due); err != nil {
			return err
		}
	}
	return nil
}

var epoch = time.Now()

// Stamp writes when a message was due into its first eight bytes, so that a wait before sending counts.
func Stamp(payload []byte, due time.Time) {
	binary.LittleEndian.PutUint64(payload, uint64(due.Sub(epoch)))
}

// Stopwatch collects end-to-end latencies; one goroutine only.
type Stopwatch struct {
	taken []time.Duration
}

// Receive notes the arrival of a stamped message.
func (watch *Stopwatch) Receive(payload []byte) {
	watch.taken = append(watch.taken, time.Since(epoch)-time.Duration(binary.LittleEndian.Uint64(payload)))
}

// Result leaves the first fifth out, which belongs to the warm-up, and takes the percentiles of the rest.
func (watch *Stopwatch) Result(seconds float64) Result {
	messages := len(watch.taken)
	warm := watch.taken[messages/5:]
	sort.Slice(warm, func(i, j int) bool { return warm[i] < warm[j] })
	percentile := func(share float64) float64 {
		return float64(warm[int(share*float64(len(warm)-1))]) / float64(time.Microsecond)
	}
	return Result{messages, seconds, percentile(0.5), percentile(0.99), percentile(0.999)}
}
