// What a service does with go-redis: shop PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var all = context.Background()

func main() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], ClientName: "shop"})
	defer client.Close()
	check(client.FlushAll(all).Err(), nil)
	check(client.Do(all, "CLIENT", "GETNAME").Val(), "shop")
	carts(client)
	pipelines(client)
	scans(client)
	stock(client)
	rows(client)
	fmt.Println("go-redis: hashes, expiry, pipelines, scans, transactions of eight goroutines, and rows, over RESP3")
}

func carts(client *redis.Client) {
	check(client.HSet(all, "cart:1", "apple", 2, "pear", 1).Val(), int64(2))
	check(client.HIncrBy(all, "cart:1", "apple", 3).Val(), int64(5))
	check(client.HGetAll(all, "cart:1").Val(), map[string]string{"apple": "5", "pear": "1"})
	var cart struct {
		Apple int `redis:"apple"`
		Pear  int `redis:"pear"`
	}
	check(client.HGetAll(all, "cart:1").Scan(&cart), nil)
	check([]int{cart.Apple, cart.Pear}, []int{5, 1})
	check(client.Expire(all, "cart:1", time.Minute).Val(), true)
	check(client.TTL(all, "cart:1").Val() > 0, true)
	check(client.SetNX(all, "lock", "me", time.Minute).Val(), true)
	check(client.SetNX(all, "lock", "you", time.Minute).Val(), false)
	check(client.Get(all, "none").Err(), redis.Nil)
	check(client.MGet(all, "lock", "none").Val(), []interface{}{"me", nil})
	check(client.Get(all, "cart:1").Err().Error()[:9], "WRONGTYPE")
}

func pipelines(client *redis.Client) {
	replies, err := client.Pipelined(all, func(pipe redis.Pipeliner) error {
		for i := 0; i < 5000; i++ {
			pipe.Set(all, fmt.Sprintf("item:%d", i), i, 0)
			pipe.IncrBy(all, "sum", int64(i))
		}
		return nil
	})
	check(err, nil)
	check(len(replies), 10_000)
	check(client.Get(all, "sum").Val(), "12497500")
	done, err := client.TxPipelined(all, func(pipe redis.Pipeliner) error {
		pipe.Incr(all, "sum")
		pipe.HGet(all, "sum", "field")
		pipe.Get(all, "sum")
		return nil
	})
	check(err.Error()[:9], "WRONGTYPE")
	check(done[2].(*redis.StringCmd).Val(), "12497501")
}

func scans(client *redis.Client) {
	found := map[string]bool{}
	keys := client.Scan(all, 0, "item:*", 200).Iterator()
	for keys.Next(all) {
		found[keys.Val()] = true
	}
	check(keys.Err(), nil)
	check(len(found), 5000)
	for i := 0; i < 1000; i++ {
		check(client.HSet(all, "many", fmt.Sprintf("field:%d", i), i).Err(), nil)
	}
	fields := map[string]string{}
	pairs := client.HScan(all, "many", 0, "", 100).Iterator()
	for pairs.Next(all) {
		field := pairs.Val()
		pairs.Next(all)
		fields[field] = pairs.Val()
	}
	check(len(fields), 1000)
	check(fields["field:77"], "77")
}

// Eight goroutines take one piece after the other, by WATCH, MULTI and EXEC: the pieces are 300.
func stock(client *redis.Client) {
	check(client.Set(all, "stock", 300, 0).Err(), nil)
	bought := make([]int, 8)
	var buyers sync.WaitGroup
	for buyer := range bought {
		buyers.Add(1)
		go func(buyer int) {
			defer buyers.Done()
			for {
				is, err := buy(client)
				if err != nil || !is {
					check(err, nil)
					return
				}
				bought[buyer]++
			}
		}(buyer)
	}
	buyers.Wait()
	sum := 0
	for _, pieces := range bought {
		sum += pieces
	}
	check(sum, 300)
	check(client.Get(all, "stock").Val(), "0")
}

// buy takes a piece if there is one, and tries again where somebody else was faster.
func buy(client *redis.Client) (bool, error) {
	for {
		isSoldOut := false
		err := client.Watch(all, func(tx *redis.Tx) error {
			left, err := tx.Get(all, "stock").Int()
			if isSoldOut = left == 0; err != nil || isSoldOut {
				return err
			}
			_, err = tx.TxPipelined(all, func(pipe redis.Pipeliner) error {
				pipe.Set(all, "stock", left-1, 0)
				return nil
			})
			return err
		}, "stock")
		if !errors.Is(err, redis.TxFailedErr) {
			return !isSoldOut, err
		}
	}
}

// rows are farpool's own, by commands that the library does not know.
func rows(client *redis.Client) {
	check(client.Do(all, "FP.SPACE", "CREATE", "users", "id u64, name utf8, age u32").Err(), nil)
	check(client.Do(all, "FP.ROWSET", "users", 1, "Ada", 36, 2, "Bob", 28).Val(), int64(2))
	check(client.HGetAll(all, "users:1").Val(), map[string]string{"name": "Ada", "age": "36"})
	found := client.Do(all, "FP.SCAN", "users", "age > 30").Val()
	check(found, []interface{}{"0", []interface{}{[]interface{}{"users:1", []interface{}{"Ada", "36"}}}})
}

func check(got, expected interface{}) {
	if !reflect.DeepEqual(got, expected) {
		panic(fmt.Sprintf("got %v in place of %v", got, expected))
	}
}
