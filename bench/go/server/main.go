// A minimal grpc-go server of the two hot Danube calls: the yardstick for the broker's front door.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"

	pb "danube.bench/danubepb"
)

type producers struct {
	pb.UnimplementedProducerServiceServer
}

func (producers) SendMessage(_ context.Context, message *pb.StreamMessage) (*pb.MessageResponse, error) {
	return &pb.MessageResponse{RequestId: message.RequestId}, nil
}

type consumers struct {
	pb.UnimplementedConsumerServiceServer
	message *pb.StreamMessage
}

// ReceiveMessages sends one prepared message for as long as the client takes it.
func (c consumers) ReceiveMessages(
	_ *pb.ReceiveRequest, stream grpc.ServerStreamingServer[pb.StreamMessage],
) error {
	for {
		if err := stream.Send(c.message); err != nil {
			return err
		}
	}
}

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	flag.Parse()

	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	message := &pb.StreamMessage{
		RequestId:        1,
		MsgId:            &pb.MsgID{ProducerId: 1 << 40, TopicName: "/default/bench", TopicOffset: 123456},
		Payload:          bytes.Repeat([]byte{'x'}, 1024),
		PublishTime:      1700000000000,
		ProducerName:     "bench",
		SubscriptionName: "bench",
	}
	server := grpc.NewServer()
	pb.RegisterProducerServiceServer(server, producers{})
	pb.RegisterConsumerServiceServer(server, consumers{message: message})
	fmt.Println("ready")
	log.Fatal(server.Serve(listener))
}
