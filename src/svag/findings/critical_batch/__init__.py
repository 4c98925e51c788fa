"""How far can I scale the batch? From readings of one run to the batch size beyond which linear scaling cannot hold."""
