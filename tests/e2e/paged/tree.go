// Builds search trees on several threads at once, collects garbage, and sums them: pointers all over the heap.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

type node struct {
	left, right *node
	key         uint64
	rest        [12]uint64
}

func (at *node) add(key uint64) *node {
	if at == nil {
		return &node{key: key}
	}
	if key < at.key {
		at.left = at.left.add(key)
	} else {
		at.right = at.right.add(key)
	}
	return at
}

func (at *node) sum() uint64 {
	if at == nil {
		return 0
	}
	return at.left.sum() + at.key + at.right.sum()
}

func main() {
	nodes, _ := strconv.Atoi(os.Args[1])
	sums := make([]uint64, 8)
	var all sync.WaitGroup
	for thread := range sums {
		all.Add(1)
		go func() {
			defer all.Done()
			var root *node
			key := uint64(thread + 1)
			for range nodes / len(sums) {
				key = key*6364136223846793005 + 1442695040888963407
				root = root.add(key >> 20)
			}
			runtime.GC()
			sums[thread] = root.sum()
		}()
	}
	all.Wait()
	fmt.Println(sums)
}
