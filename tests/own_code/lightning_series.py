"""Forecasts series with Lightning: its Trainer calls the optimizer with a closure."""

import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Forecaster(lightning.LightningModule):
    """A cell that the model calls once per time step."""

    def __init__(self, features, size):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(features, size), nn.Linear(size, features)

    def forward(self, series):
        state = None
        for values in series.unbind(1):
            state = self.cell(values, state)
        return self.head(state[0])

    def _loss(self, batch):
        series, following = batch
        return nn.functional.mse_loss(self(series), following)

    def training_step(self, batch, number):
        loss = self._loss(batch)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, number):
        self.log("val_loss", self._loss(batch), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def loader(count):
    series = torch.randn(8 * count, 19, 6).cumsum(1)
    return DataLoader(TensorDataset(series[:, :-1], series[:, -1]), batch_size=8)


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    lightning.seed_everything(0)
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=4, gradient_clip_val=1.0)
    trainer.fit(Forecaster(6, 20), loader(steps // 4), loader(2))
