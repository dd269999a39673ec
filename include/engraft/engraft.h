/* engraft/engraft.h - all of engraft: neural architecture search and model surgery in C. */
#ifndef ENGRAFT_ENGRAFT_H
#define ENGRAFT_ENGRAFT_H

#include "base.h"
#include "tensor.h"
#include "autograd.h"
#include "ops.h"
#include "nn.h"
#include "optim.h"
#include "io.h"
#include "data.h"
#include "nas.h"
#include "train.h"

#endif
