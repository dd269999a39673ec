#!/bin/sh
# The main job, end to end: search on Fashion-MNIST, retrain the network found, and the same for a random architecture of
# the same space (the control). usage: demo.sh ENGRAFT [OUT_DIR]
set -eu
engraft=$1 out=${2:-build/demo}
export OMP_WAIT_POLICY=passive
rm -rf "$out"
mkdir -p "$out"
common="--space cells --data fashion-mnist --seed 1"
echo "1/4  searching with DARTS"
$engraft search $common --strategy darts --epochs 3 --subset 12000 --batch 64 --out "$out/search"
echo "2/4  retraining the architecture it found"
$engraft retrain --run "$out/search" --epochs 4 --augment off --out "$out/darts"
echo "3/4  drawing a random architecture of the same space, the control"
$engraft search $common --strategy random --out "$out/random-search"
echo "4/4  retraining it alike"
$engraft retrain --run "$out/random-search" --epochs 4 --augment off --out "$out/random"
echo
$engraft compare --run "$out/darts" --control "$out/random"
