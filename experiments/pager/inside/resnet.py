#!/usr/bin/env python3
"""Trains ResNet50 on pictures of noise, with a fixed seed. Prints one JSON object: seconds of training, and the loss of each step."""

from __future__ import annotations

import argparse
import json
import time

import torch
import torchvision

CLASSES = 1000


def main() -> None:
    """All pictures are made first; an epoch passes over them once, in the same order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--side", type=int, default=224, help="of a picture, in pixels")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = torchvision.models.resnet50(num_classes=CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(args.images, 3, args.side, args.side)
    labels = torch.randint(0, CLASSES, (args.images,))
    started = time.monotonic()
    losses = []
    for _ in range(args.epochs):
        for part, wanted in zip(images.split(args.batch), labels.split(args.batch), strict=True):
            loss = torch.nn.functional.cross_entropy(model(part), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    print(json.dumps({"seconds": time.monotonic() - started, "losses": losses}))


if __name__ == "__main__":
    main()
