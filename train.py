"""Fine-tune a causal language model under a loss: python train.py [-m] [group=option ...] [key=value ...]"""

from lossbench.app import main

if __name__ == "__main__":
    main()
