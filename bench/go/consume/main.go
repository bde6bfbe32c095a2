// A stream reader: opens ReceiveMessages for every given consumer, each over a connection of its own,
// counts what arrives and prints the tally as one JSON line. It stops at the count, at the end of the
// time, or when its standard input closes, whichever comes first.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	pb "danube.bench/danubepb"
)

// countingCodec leaves inbound messages undecoded: the reader must not be the bottleneck.
type countingCodec struct{ encoding.CodecV2 }

func (countingCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

type tally struct {
	Messages     int64   `json:"messages"`
	Seconds      float64 `json:"seconds"`
	started      atomic.Int64
	received     atomic.Int64
	lastReceived atomic.Int64
}

// count notes one message and says how many there are now.
func (t *tally) count() int64 {
	now := time.Now().UnixNano()
	t.started.CompareAndSwap(0, now)
	t.lastReceived.Store(now)
	return t.received.Add(1)
}

func main() {
	address := flag.String("address", "", "server to read from")
	consumerIDs := flag.String("consumers", "1", "comma-separated consumer ids")
	subscription := flag.String("subscription", "", "subscription named in the acks")
	ackWorkers := flag.Int("ack-workers", 0, "acks in flight per consumer; 0 acks nothing")
	limit := flag.Int64("count", 1<<62, "stop after this many messages")
	duration := flag.Duration("duration", time.Hour, "stop after this time")
	flag.Parse()

	// Not a deadline: that would travel to the server, which might end the stream before we do.
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(*duration, cancel)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	total := &tally{}
	var opened, finished sync.WaitGroup
	for _, text := range strings.Split(*consumerIDs, ",") {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			log.Fatal(err)
		}
		opened.Add(1)
		finished.Add(1)
		go func() {
			defer finished.Done()
			read := reader{total, *limit, *ackWorkers, *subscription, cancel}
			read.run(ctx, *address, id, opened.Done)
		}()
	}
	opened.Wait()
	fmt.Println("ready")
	finished.Wait()

	total.Messages = total.received.Load()
	total.Seconds = time.Duration(total.lastReceived.Load() - total.started.Load()).Seconds()
	if err := json.NewEncoder(os.Stdout).Encode(total); err != nil {
		log.Fatal(err)
	}
}

type reader struct {
	total        *tally
	limit        int64
	ackWorkers   int
	subscription string
	stop         context.CancelFunc
}

// run reads one stream to its end.
func (r reader) run(ctx context.Context, address string, id uint64, opened func()) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := pb.NewConsumerServiceClient(conn)

	var options []grpc.CallOption
	if r.ackWorkers == 0 {
		options = append(options, grpc.ForceCodecV2(countingCodec{encoding.GetCodecV2("proto")}))
	}
	stream, err := client.ReceiveMessages(ctx, &pb.ReceiveRequest{RequestId: 1, ConsumerId: id}, options...)
	if err != nil {
		log.Fatal(err)
	}
	if _, err = stream.Header(); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
	opened()

	unacked := make(chan *pb.StreamMessage, max(1, r.ackWorkers))
	var acking sync.WaitGroup
	for range r.ackWorkers {
		acking.Add(1)
		go func() {
			defer acking.Done()
			for message := range unacked {
				r.ack(ctx, client, message)
			}
		}()
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			if ctx.Err() == nil {
				log.Fatal(err)
			}
			break
		}
		if r.ackWorkers > 0 {
			unacked <- message
		}
		if r.total.count() >= r.limit {
			break
		}
	}
	close(unacked)
	acking.Wait()
	r.stop()
}

func (r reader) ack(ctx context.Context, client pb.ConsumerServiceClient, message *pb.StreamMessage) {
	request := &pb.AckRequest{
		RequestId: message.RequestId, MsgId: message.MsgId, SubscriptionName: r.subscription,
	}
	if _, err := client.Ack(ctx, request); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}
